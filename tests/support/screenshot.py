"""A running console's screen as SVG.

``PYTHONPATH=tests python -m support.screenshot FILE.svg (incident|small|quiet|URL) 120x36 dark [KEY …]``;
a key may also be ``wait:SECONDS``. Every run of text is placed at its own column, so what the picture shows
is cell for cell what the terminal gets.
"""

import asyncio
import html
import sys
from pathlib import Path

from infer_console.collector import Collector
from infer_console.connect import parse_url
from infer_console.ui.app import ConsoleApp
from infer_console.ui.screens.base import PaintedScreen
from rich.color import Color
from rich.style import Style
from rich.terminal_theme import MONOKAI, TerminalTheme
from support.demo import demo_app
from textual.strip import Strip

CELL, ROW, SIZE = 8.4, 18.0, 14.0
FONTS = "DejaVu Sans Mono, Menlo, Consolas, monospace"


def screen_svg(app: ConsoleApp) -> str:
    """The current screen of an app under ``run_test``."""
    screen = app.screen
    assert isinstance(screen, PaintedScreen)
    strips = [screen.canvas.render_line(y) for y in range(app.size.height)]
    return strips_svg(strips, app.size.width)


def strips_svg(strips: list[Strip], width: int, theme: TerminalTheme = MONOKAI) -> str:
    wide, tall = width * CELL + 16, len(strips) * ROW + 16
    ground = _hex(Color.default(), theme, foreground=False)
    for segment in strips[-2]:
        if segment.style is not None and segment.style.bgcolor is not None:
            ground = _hex(segment.style.bgcolor, theme, foreground=False)
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {tall:g}" '
        f'font-family="{FONTS}" font-size="{SIZE:g}">',
        f'<rect width="{wide:g}" height="{tall:g}" rx="6" fill="{ground}"/>',
    ]
    for y, strip in enumerate(strips):
        column = 0
        for segment in strip:
            text, style = segment.text, segment.style or Style.null()
            made += _run(text, style, 8 + column * CELL, 8 + y * ROW, segment.cell_length, theme)
            column += segment.cell_length
    return "\n".join([*made, "</svg>\n"])


def _hex(color: Color | None, theme: TerminalTheme, foreground: bool) -> str:
    chosen = color or Color.default()
    red, green, blue = chosen.get_truecolor(theme, foreground=foreground)
    return f"#{red:02x}{green:02x}{blue:02x}"


def _run(text: str, style: Style, x: float, y: float, cells: int, theme: TerminalTheme) -> list[str]:
    front, back = _hex(style.color, theme, foreground=True), _hex(style.bgcolor, theme, foreground=False)
    if style.reverse:
        front, back = back, front
    made: list[str] = []
    if style.reverse or (style.bgcolor is not None and not style.bgcolor.is_default):
        made.append(
            f'<rect x="{x:.1f}" y="{y:g}" width="{cells * CELL:.1f}" height="{ROW:g}" fill="{back}"/>'
        )
    weight = ' font-weight="bold"' if style.bold else ""
    faint = ' opacity="0.6"' if style.dim else ""
    line = ' text-decoration="underline"' if style.underline else ""
    position = 0
    for word in text.split(" "):
        if word:
            length = len(word) * CELL
            made.append(
                f'<text x="{x + position * CELL:.1f}" y="{y + 14:g}" textLength="{length:.1f}" '
                f'lengthAdjust="spacingAndGlyphs" fill="{front}"{weight}{faint}{line}>'
                f"{html.escape(word)}</text>"
            )
        position += len(word) + 1
    return made


def app_of(what: str, theme: str) -> ConsoleApp:
    """A prepared picture, or a server that is running."""
    if "://" not in what:
        return demo_app(what, theme)
    collector = Collector(parse_url(what))
    collector.start()
    return ConsoleApp(collector, theme=theme)


async def picture(what: str, size: str, theme: str, keys: list[str]) -> str:
    width, height = (int(part) for part in size.split("x"))
    app = app_of(what, theme)
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.pause(0.5)
        for key in keys:
            if key.startswith("wait:"):
                await asyncio.sleep(float(key.removeprefix("wait:")))
            else:
                await pilot.press(key)
        await pilot.pause(0.5)
        svg = screen_svg(app)
    if isinstance(app.collector, Collector):
        app.collector.stop()
    return svg


if __name__ == "__main__":
    made = asyncio.run(picture(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:]))
    Path(sys.argv[1]).write_text(made, encoding="utf-8")
