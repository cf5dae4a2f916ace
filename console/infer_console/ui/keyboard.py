"""What comes from the terminal, before Textual finds keys in it: bytes that are no UTF-8 would end its
reading, and the console with it, and what is pasted would act."""

from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Callable, Iterable
from typing import Any, cast

from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver, web_driver
from textual.message import Message

from infer_console.terminal.pastes import PasteGuard


class GuardedParser(XTermParser):
    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._pastes = PasteGuard()

    def feed(self, data: str) -> Iterable[Message]:
        """Nothing at all is the end of the input, so that what is held back must not look like it."""
        read = self._pastes.through(data)
        return super().feed(read) if read or not data else ()


def forgiving(encoding: str) -> Callable[[], IncrementalDecoder]:
    """A decoder that shows what it cannot decode: a line's noise, a terminal with another encoding."""
    decoder = getincrementaldecoder(encoding)
    return lambda: decoder("replace")


def guard_input() -> None:
    """Have Textual's drivers use both. They look them up by these names; tests in a real terminal hold us to
    it."""
    for driver in (cast("Any", linux_driver), cast("Any", web_driver)):
        driver.XTermParser = GuardedParser
        driver.getincrementaldecoder = forgiving
