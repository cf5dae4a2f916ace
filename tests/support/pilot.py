"""Driving the console's app headless: keys in, text out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from infer_console.state.picture import Picture
from infer_console.ui.app import ConsoleApp
from infer_console.ui.screens.base import PaintedScreen
from infer_console.ui.themes import DEFAULT
from support.demo import DemoApp
from support.fake_collector import FakeCollector
from textual import events
from textual.pilot import Pilot


class Driven:
    def __init__(self, app: ConsoleApp, collector: FakeCollector, pilot: Pilot[int]) -> None:
        self.app, self.collector, self.pilot = app, collector, pilot

    @property
    def screen(self) -> PaintedScreen:
        screen = self.app.screen
        assert isinstance(screen, PaintedScreen)
        return screen

    @property
    def lines(self) -> list[str]:
        return [self.screen.canvas.render_line(y).text.rstrip() for y in range(self.app.size.height)]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    async def press(self, *keys: str) -> None:
        """Textual's own ``press`` waits for the processor to be idle, which a shared machine never is."""
        for key in keys:
            driver = self.app._driver
            assert driver is not None
            event = events.Key(key, key if len(key) == 1 else " " if key == "space" else None)
            event.set_sender(self.app)
            driver.send_message(event)
            await self.settle()

    async def settle(self) -> None:
        """What was sent has been worked off, by the app and then by the screen it was passed on to, and
        painted."""
        for _ in range(4):
            await asyncio.sleep(0)
            await self.pilot._wait_for_screen()

    async def type(self, text: str) -> None:
        await self.press(*("space" if character == " " else character for character in text))

    async def wait(self, what: str, seen: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Poll until ``seen`` is true; fails with the screen."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not seen():
            assert asyncio.get_running_loop().time() < deadline, f"never saw {what}:\n{self.text}"
            await asyncio.sleep(0.01)

    async def wait_for(self, text: str) -> None:
        await self.wait(repr(text), lambda: text in self.text)

    async def show(self, picture: Picture) -> None:
        """A new picture, painted."""
        self.collector.show(picture)
        await self.settle()
        self.app.frame()


@asynccontextmanager
async def drive(
    picture: Picture, width: int = 120, height: int = 36, **options: object
) -> AsyncIterator[Driven]:
    collector = FakeCollector(picture)
    app = DemoApp(collector, theme=DEFAULT, **options)  # pyright: ignore[reportArgumentType]
    async with app.run_test(size=(width, height)) as pilot:
        driven = Driven(app, collector, pilot)
        await driven.wait(
            "the first frame", lambda: isinstance(app.screen, PaintedScreen) and driven.text.strip()
        )
        yield driven
