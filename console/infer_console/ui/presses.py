"""Keys as they come: each goes to the screen that is on top when its turn comes, and is done with before the
next.

Several may come in one read, and Textual would give them all to the screen that was there first. What they
change is painted once they are all done: a key that is held down over a slow link asks for no picture that
nobody sees.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from textual import events
from textual.timer import Timer

from infer_console.terminal.answers import HOLD_S, TornAnswer, Typed
from infer_console.ui.pacing import Pacer
from infer_console.ui.quick_keys import as_typed


class PressedApp(Protocol):
    """What the presses need of the app."""

    pacer: Pacer

    async def press(self, key: events.Key) -> None: ...

    def repaint(self) -> int: ...

    def call_later(self, callback: Callable[[], None]) -> bool: ...

    def set_timer(self, delay: float, callback: Callable[[], Awaitable[None]] | None = None) -> Timer: ...


class Presses:
    """Lives on the event loop's thread."""

    def __init__(self, app: PressedApp) -> None:
        self._app = app
        self._torn = TornAnswer()
        self._hold: Timer | None = None
        self._pressing = False
        #: What keys changed is to be painted, behind the keys that have come by now.
        self._owed = False

    async def take(self, event: events.Key) -> None:
        pacer = self._app.pacer
        pacer.pressed()
        for key in as_typed(event):
            acted, answer = self._torn.feed(Typed(key.key, key.character), pacer.awaiting)
            if answer:
                pacer.answered(key.time)
            await self._press(acted)
        if self._hold is not None:
            self._hold.stop()
        # Anew with every piece: a torn answer takes its time.
        self._hold = self._app.set_timer(HOLD_S, self._release) if self._torn.holding else None

    async def _press(self, keys: list[Typed]) -> None:
        self._pressing = True
        try:
            for key in keys:
                await self._app.press(events.Key(*key))
        finally:
            self._pressing = False

    async def _release(self) -> None:
        """What was held is no answer: nothing that continues one has come."""
        await self._press(self._torn.release())

    def puts_off(self) -> bool:
        """Whether painting waits for the key that is being done, and for those that came with it."""
        if self._pressing and not self._owed:
            self._owed = self._app.call_later(self._paint)
        return self._pressing and self._owed

    def _paint(self) -> None:
        self._owed = False
        self._app.repaint()
