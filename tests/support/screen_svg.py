"""A terminal's screen, as pyte has it, as SVG: every run of text at its own column."""

import html
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeVar

import pyte
from pyte.screens import Char

T = TypeVar("T")

CELL, ROW, SIZE, EDGE = 8.4, 18, 14, 10
FONTS = "DejaVu Sans Mono,Menlo,Consolas,Liberation Mono,monospace"
#: The sixteen colours as terminals commonly have them, by pyte's names; a theme of 16 colours has no others.
ANSI = {
    "black": "1d1f21",
    "red": "cc6666",
    "green": "8fb35a",
    "brown": "d7a65f",
    "blue": "6a9fd0",
    "magenta": "b294bb",
    "cyan": "76b7b2",
    "white": "c5c8c6",
    "brightblack": "7c7f82",
    "brightred": "ff6f6f",
    "brightgreen": "b5d68c",
    "brightbrown": "ffd580",
    "brightblue": "8fc1f0",
    "brightmagenta": "d8b4e2",
    "brightcyan": "96e0d8",
    "brightwhite": "ffffff",
}
#: pyte's own spelling.
ANSI["bfightmagenta"] = ANSI["brightmagenta"]
FRONT, GROUND = ANSI["white"], ANSI["black"]


def screen_svg(screen: pyte.Screen, title: str) -> str:
    """``title`` is what those who cannot see it are told."""
    wide, tall = screen.columns * CELL + 2 * EDGE, screen.lines * ROW + 2 * EDGE
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {tall:g}" '
        f'font-family="{FONTS}" font-size="{SIZE}" xml:space="preserve" role="img">',
        f"<title>{html.escape(title)}</title>",
        "<style>.b{font-weight:bold}.u{text-decoration:underline}</style>",
        f'<rect width="{wide:g}" height="{tall:g}" rx="8" fill="#{ground(screen)}"/>',
    ]
    for y in range(screen.lines):
        cells = [screen.buffer[y][x] for x in range(screen.columns)]
        made += _grounds(cells, EDGE + y * ROW, ground(screen))
        made += _words(cells, EDGE + y * ROW + 14)
    return "\n".join([*made, "</svg>\n"])


def ground(screen: pyte.Screen) -> str:
    """The colour that most cells stand on."""
    colours = [_colours(screen.buffer[y][x])[1] for y in range(screen.lines) for x in range(screen.columns)]
    return max(sorted(set(colours)), key=colours.count)


def _colours(cell: Char) -> tuple[str, str]:
    front = FRONT if cell.fg == "default" else ANSI.get(cell.fg, cell.fg)
    back = GROUND if cell.bg == "default" else ANSI.get(cell.bg, cell.bg)
    return (back, front) if cell.reverse else (front, back)


def _grounds(cells: list[Char], top: float, usual: str) -> Iterator[str]:
    for back, run in _runs(_colours(cell)[1] for cell in cells):
        if back != usual:
            # A little wider, so that no hair of the ground is between two.
            yield (
                f'<rect x="{EDGE + run.start * CELL:.1f}" y="{top:g}" width="{len(run) * CELL + 0.2:.1f}" '
                f'height="{ROW}" fill="#{back}"/>'
            )


def _words(cells: list[Char], base: float) -> Iterator[str]:
    looks = [(_colours(cell)[0], cell.bold, cell.underscore) if cell.data.strip() else None for cell in cells]
    for look, run in _runs(_bridged(looks)):
        if look is None:
            continue
        front, bold, underscore = look
        text = "".join(cells[x].data or " " for x in run)
        kind = " ".join(name for name, is_so in (("b", bold), ("u", underscore)) if is_so)
        yield (
            f'<text x="{EDGE + run.start * CELL:.1f}" y="{base:g}" textLength="{len(run) * CELL:.1f}"'
            + (f' class="{kind}"' if kind else "")
            + f' fill="#{front}">{html.escape(text, quote=False)}</text>'
        )


def _bridged(looks: list[T | None]) -> list[T | None]:
    """One space between two words that look alike belongs to both."""
    bridged = list(looks)
    for x in range(1, len(looks) - 1):
        if looks[x] is None and looks[x - 1] == looks[x + 1]:
            bridged[x] = looks[x - 1]
    return bridged


def _runs(values: Iterable[T]) -> Iterator[tuple[T, range]]:
    start = 0
    for value, group in groupby(values):
        end = start + sum(1 for _ in group)
        yield value, range(start, end)
        start = end
