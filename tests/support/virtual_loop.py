"""An asyncio event loop without waiting: when nothing is left to do now, it is the moment of the next timer.

On it a whole fleet with its drains, deadlines and test traffic runs as fast as the machine computes, and
the same way every time: it has no sockets, no threads and no clock to be late by.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class NothingLeftError(RuntimeError):
    """Everything waits and no timer is set: on a real loop this would wait for ever."""


class _JumpingSelector(selectors.BaseSelector):
    """Moves the time instead of waiting. It watches no file but the loop's own wake-up pipe, which nobody
    writes to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._keys: dict[FileDescriptorLike, selectors.SelectorKey] = {}

    def register(self, fileobj: "FileDescriptorLike", events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, descriptor, events, data)
        return key

    def unregister(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeftError("everything waits and no timer is set")
        self.now_s += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping["FileDescriptorLike", selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """``time()`` begins at 0 and is also the clock of what is simulated."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """At once: there is no other thread that could do it meanwhile."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  it is its caller's
            done.set_exception(error)
        return done


class LoopClock:
    """The time of the running loop as a clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return self._loop.time()

    def call_at(self, due_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(due_s, callback)


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on a loop without waiting."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
