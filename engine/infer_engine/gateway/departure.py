"""Noticing that a client left, whatever its request is doing at that moment."""

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Receive

from infer_engine.gateway.receipt import ClientGoneError


class Departure:
    """``async with Departure(receive)`` around everything that happens for a client once its body is read:
    when the client disconnects, what is being awaited inside is cancelled at once and ClientGoneError leaves
    the block.

    Plain handlers are not told of disconnects by the server, and streaming ones only by some versions of it,
    so both use this.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._worker: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._gone = False

    async def __aenter__(self) -> Self:
        self._worker = asyncio.current_task()
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watcher, worker = self._watcher, self._worker
        assert watcher is not None
        assert worker is not None
        watcher.cancel()
        if self._gone:
            # What was cancelled was the wait for an answer. When the server cancelled as well, that goes on.
            cancelled_by_server = worker.uncancel() > 0
            if not cancelled_by_server and (kind is None or issubclass(kind, asyncio.CancelledError)):
                raise ClientGoneError from None

    def answered(self) -> None:
        """To be called before the last message is sent: servers report an answered request as a
        disconnect."""
        if self._watcher is not None:
            self._watcher.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        worker = self._worker
        assert worker is not None
        self._gone = True
        worker.cancel()
