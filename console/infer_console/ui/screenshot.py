"""What is on the screen as a file: SVG with its colours, every run of text at its own column, or plain
text."""

import html
from collections.abc import Iterator
from pathlib import Path

from rich.color import Color
from rich.style import Style
from rich.terminal_theme import MONOKAI, TerminalTheme

from infer_console.past.files import whole_new
from infer_console.ui.themes import Theme
from infer_console.view.row import Row, plain

CELL, ROW, SIZE, EDGE = 8.4, 18.0, 14.0, 8.0
FONTS = "DejaVu Sans Mono, Menlo, Consolas, monospace"
ENDINGS = (".svg", ".txt")


class ScreenshotError(ValueError):
    """``str()`` says what is wrong with the file's name."""


def checked(path: Path) -> Path:
    """Raise ScreenshotError for a name that tells no kind."""
    if path.suffix not in ENDINGS:
        raise ScreenshotError(f"{str(path)[:80]!r} was given, a name that ends in .svg or .txt is allowed")
    return path


def write_screenshot(path: Path, rows: list[Row], theme: Theme) -> int:
    """A new file for its owner alone. Returns its bytes; OSError where it is there already, too."""
    text = text_of(rows) if checked(path).suffix == ".txt" else svg_of(rows, theme)
    data = text.encode("utf-8")
    with whole_new(path) as file:
        file.write(data)
    return len(data)


def text_of(rows: list[Row]) -> str:
    return "\n".join(plain(row) for row in rows) + "\n"


def svg_of(rows: list[Row], theme: Theme, colours: TerminalTheme = MONOKAI) -> str:
    """``colours`` are those of a terminal, for themes that have none of their own."""
    cells = max((sum(span.cells for span in row) for row in rows), default=0)
    wide, tall = cells * CELL + 2 * EDGE, len(rows) * ROW + 2 * EDGE
    ground = _hex(theme.style("text", "plain").bgcolor, colours, foreground=False)
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {tall:g}" '
        f'font-family="{FONTS}" font-size="{SIZE:g}">',
        f'<rect width="{wide:g}" height="{tall:g}" rx="6" fill="{ground}"/>',
    ]
    for y, row in enumerate(rows):
        column = 0
        for span in row:
            style = theme.style(span.role, span.tone)
            made += _run(span.text, style, EDGE + column * CELL, EDGE + y * ROW, span.cells, colours)
            column += span.cells
    return "\n".join([*made, "</svg>\n"])


def _hex(color: Color | None, colours: TerminalTheme, foreground: bool) -> str:
    red, green, blue = (color or Color.default()).get_truecolor(colours, foreground=foreground)
    return f"#{red:02x}{green:02x}{blue:02x}"


def _run(text: str, style: Style, x: float, y: float, cells: int, colours: TerminalTheme) -> Iterator[str]:
    front = _hex(style.color, colours, foreground=True)
    back = _hex(style.bgcolor, colours, foreground=False)
    if style.reverse:
        front, back = back, front
    if style.reverse or (style.bgcolor is not None and not style.bgcolor.is_default):
        yield f'<rect x="{x:.1f}" y="{y:g}" width="{cells * CELL:.1f}" height="{ROW:g}" fill="{back}"/>'
    weight = ' font-weight="bold"' if style.bold else ""
    faint = ' opacity="0.6"' if style.dim else ""
    line = ' text-decoration="underline"' if style.underline else ""
    # Wide characters are not at the column that counting characters gives.
    words = text.split(" ") if len(text) == cells else [text]
    at = 0
    for word in words:
        if word.strip():
            length = (len(word) if len(text) == cells else cells) * CELL
            yield (
                f'<text x="{x + at * CELL:.1f}" y="{y + 14:g}" textLength="{length:.1f}" '
                f'lengthAdjust="spacingAndGlyphs" fill="{front}"{weight}{faint}{line}>'
                f"{html.escape(word)}</text>"
            )
        at += len(word) + 1
