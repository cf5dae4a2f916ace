"""Server-sent events with their own disconnect watcher and send timeout: a client that leaves or stops
reading costs nothing after that, whatever the server or the framework do about it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

#: A client that takes no bytes for this long is cut off.
SEND_TIMEOUT_S = 10.0

EVENTS = b"text/event-stream; charset=utf-8"
_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """An ASGI response that sends what ``messages`` yields. The generator is always closed: when it ends,
    when the client goes, and when the client stops reading for SEND_TIMEOUT_S; ``closed`` is called after
    it, even if nothing was ever sent."""

    def __init__(
        self,
        messages: AsyncGenerator[bytes],
        closed: Callable[[], None] = lambda: None,
        *,
        media_type: bytes = EVENTS,
    ) -> None:
        self._headers = [(b"content-type", media_type), *_HEADERS]
        self._messages = messages
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(scope, receive, send)
        finally:
            self._closed()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        abort: Callable[[], None] | None = scope.get("state", {}).get("abort")
        sender = asyncio.create_task(self._send_all(send))
        watcher = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({sender, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if sender.done() and sender.result() == "stuck" and abort is not None:
                log.info("cutting a stream whose client took nothing for %.0f s", SEND_TIMEOUT_S)
                abort()
                await watcher
        finally:
            for task in (sender, watcher):
                task.cancel()
            results = await asyncio.gather(sender, watcher, return_exceptions=True)
            await self._messages.aclose()
        failure = results[0]
        if isinstance(failure, Exception):
            raise failure

    async def _send_all(self, send: Send) -> str:
        """``"done"``, or ``"stuck"`` when the client stopped reading."""
        try:
            await _send(send, {"type": "http.response.start", "status": 200, "headers": self._headers})
            async for message in self._messages:
                await _send(send, {"type": "http.response.body", "body": message, "more_body": True})
            await _send(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except _StuckError:
            return "stuck"
        return "done"


class _StuckError(Exception):
    """The client took nothing for too long."""


async def _send(send: Send, message: dict[str, Any]) -> None:
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await send(message)
    except TimeoutError as error:
        raise _StuckError from error


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
