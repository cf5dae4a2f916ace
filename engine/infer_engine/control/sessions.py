"""Requests that are being answered, and for whom: a stream may outlive the right to it."""

import itertools
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from starlette.types import Scope

from infer_engine.control.principal import Principal

log = logging.getLogger(__name__)


class Sessions:
    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._open: dict[int, tuple[Principal, Callable[[], None] | None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def open(self, principal: Principal, scope: Scope) -> Generator[None]:
        number = next(self._numbers)
        self._open[number] = principal, scope.get("state", {}).get("abort")
        try:
            yield
        finally:
            del self._open[number]

    def cut(self, holds: Callable[[Principal], bool]) -> int:
        """Cut the connections of those for whom ``holds`` is not true; how many."""
        cut = 0
        for principal, abort in list(self._open.values()):
            if abort is not None and not holds(principal):
                log.info("cutting a connection of %s, whose right has ended", principal.subject)
                abort()
                cut += 1
        return cut
