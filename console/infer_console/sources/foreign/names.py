"""Addresses behind a DNS name. The system's resolver knows no time-out: it is asked on a thread that may hang
and nothing else with it."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable

#: A name with more addresses than this is shortened before anybody looks at them.
MOST_ADDRESSES = 1_024


class UnresolvedError(Exception):
    """A name that cannot be resolved; ``str()`` says which and why."""


def look_up(host: str, port: int | None) -> list[str]:
    """A and AAAA records, in order, each once. Blocks; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({str(address[4][0]) for address in found})[:MOST_ADDRESSES]


class Resolver:
    """One name. ``look_up`` is the system's but in tests."""

    def __init__(
        self,
        host: str,
        port: int | None,
        timeout_s: float,
        look_up: Callable[[str, int | None], list[str]] = look_up,
    ) -> None:
        self._host, self._port, self._timeout_s, self._look_up = host, port, timeout_s, look_up
        self._asked: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._asked is not None and self._asked.is_alive()

    async def addresses(self) -> list[str]:
        """Raise UnresolvedError."""
        if self.busy:
            raise UnresolvedError(f"{self._host}: the resolver still does not answer")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()
        self._asked = threading.Thread(target=self._ask, args=(loop, answer), name="resolver", daemon=True)
        self._asked.start()
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await answer
        except TimeoutError as error:
            words = f"{self._host}: the resolver does not answer within {self._timeout_s:g} s"
            raise UnresolvedError(words) from error
        except (OSError, UnicodeError) as error:  # a label that no name may have is a UnicodeError
            reason = getattr(error, "strerror", None) or str(error)
            raise UnresolvedError(f"{self._host}: it cannot be resolved ({reason})") from error
        if not found:
            raise UnresolvedError(f"{self._host}: it has no addresses")
        return found

    def _ask(self, loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[list[str]]") -> None:
        found: list[str] = []
        failure: Exception | None = None
        try:
            found = self._look_up(self._host, self._port)
        except (OSError, UnicodeError) as error:
            failure = error

        def tell() -> None:
            if not answer.done():
                answer.set_exception(failure) if failure is not None else answer.set_result(found)

        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile: nobody waits
            loop.call_soon_threadsafe(tell)
