"""A running console's screen as SVG.

``PYTHONPATH=tests python -m support.screenshot FILE.svg (incident|small|quiet|URL) 120x36 dark [KEY …]``;
a key may also be ``wait:SECONDS``. Every run of text is placed at its own column, so what the picture shows
is cell for cell what the terminal gets.
"""

import asyncio
import sys
from pathlib import Path

from infer_console.collector import Collector
from infer_console.connect import parse_url
from infer_console.ui.app import ConsoleApp
from infer_console.ui.screens.base import PaintedScreen
from infer_console.ui.screenshot import svg_of
from support.demo import demo_app


def screen_svg(app: ConsoleApp) -> str:
    """The current screen of an app under ``run_test``."""
    screen = app.screen
    assert isinstance(screen, PaintedScreen)
    return svg_of(screen.canvas.rows, app.theme_now)


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
