"""One server-sent event stream, written frame by frame."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.types import Send

from infer_engine.gateway.receipt import ClientGoneError
from infer_engine.gateway.settings import GatewaySettings

DONE = b"data: [DONE]\n\n"
_PING = b": ping\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # nginx holds a response back until its buffer is full unless told not to.
    (b"x-accel-buffering", b"no"),
]


def frame(document: dict[str, Any]) -> bytes:
    """``document`` as one SSE message; JSON holds no raw newline that could end it early."""
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


class EventStream:
    """``started`` tells whether the status is already on its way. A client that takes no bytes for
    ``send_timeout_s`` raises SlowReaderError out of any of these."""

    def __init__(
        self, send: Send, request_id: str, settings: GatewaySettings, headers: Mapping[str, str] | None = None
    ) -> None:
        self._send = send
        self._settings = settings
        more = {"x-request-id": request_id, **(headers or {})}
        self._headers = [*_HEADERS, *((name.encode(), value.encode()) for name, value in more.items())]
        self._written_s = time.monotonic()
        self.started = False

    @property
    def patience_s(self) -> float:
        """How long to wait for something to write before calling ``ping``."""
        quiet_s = self._settings.ping_s if self.started else self._settings.patience_s
        return max(0.0, self._written_s + quiet_s - time.monotonic())

    async def write(self, *frames: bytes) -> None:
        await self._body(b"".join(frames), more=True)

    async def ping(self) -> None:
        """Show an intermediary, and the client, that the stream lives."""
        await self._body(_PING, more=True)

    async def end(self, *frames: bytes) -> None:
        await self._body(b"".join(frames), more=False)

    async def _body(self, body: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._settings.send_timeout_s):
                if not self.started:
                    self.started = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise SlowReaderError from None
        self._written_s = time.monotonic()


class SlowReaderError(ClientGoneError):
    """The client stopped reading; as good as gone."""
