"""Receiving request bodies: bounded in bytes, one by one and together, and in time."""

import asyncio
import contextlib

from starlette.datastructures import Headers
from starlette.types import Receive

from infer_engine.gateway.errors import ApiError
from infer_engine.gateway.settings import GatewaySettings


class ClientGoneError(Exception):
    """The client left; nobody is there to answer."""


class Receipt:
    """Counts what is being received, so that slow large bodies cannot fill the memory together."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._held_bytes = 0

    async def body(self, headers: Headers, receive: Receive) -> bytes:
        """The whole body. Raise ApiError (408, 413, 415, 503), which closes the connection, or
        ClientGoneError."""
        incoming = _Incoming(receive)
        try:
            self._check_head(headers)
            return await self._receive_all(incoming)
        except ApiError as error:
            # Who waits for a 100 Continue has sent nothing and gets none.
            if error.status != 408 and "expect" not in headers:
                await self._drain(incoming)
            raise

    async def _receive_all(self, incoming: "_Incoming") -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_deadline_s):
                while not incoming.complete:
                    piece = await incoming.piece()
                    self._held_bytes += len(piece)
                    body += piece
                    self._check_size(len(body))
                return bytes(body)
        except TimeoutError:
            raise ApiError(
                408,
                f"the body was not complete after {self._settings.body_deadline_s:g} s",
                code="body_timeout",
                retry=False,
                close=True,
            ) from None
        finally:
            self._held_bytes -= len(body)

    async def _drain(self, incoming: "_Incoming") -> None:
        """Take in, and forget, the rest of a body that is refused: closing a connection with unread bytes
        resets it, and many a client would never see why."""
        drained_bytes = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.body_deadline_s):
                while not incoming.complete and drained_bytes <= self._settings.max_drained_bytes:
                    drained_bytes += len(await incoming.piece())

    def _check_head(self, headers: Headers) -> None:
        # Also keeps other sites' pages out: a browser sends JSON only after a preflight, which fails here.
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(
                415, "the Content-Type must be application/json", code="unsupported_media_type", close=True
            )
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise ApiError(
                415,
                "the body must not be compressed (Content-Encoding)",
                code="unsupported_media_type",
                close=True,
            )
        length = headers.get("content-length", "")
        if length.isascii() and length.isdigit() and len(length) < 20:
            self._check_size(int(length))

    def _check_size(self, size: int) -> None:
        limit = self._settings.max_body_bytes
        if size > limit:
            raise ApiError(
                413, f"the body is larger than {limit:,} bytes", code="request_too_large", close=True
            )
        if self._held_bytes > self._settings.max_bodies_bytes:
            raise ApiError(
                503,
                "too many large request bodies at this moment",
                code="overloaded",
                retry_after_s=1.0,
                close=True,
            )


class _Incoming:
    """A body on its way, piece by piece."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.complete = False

    async def piece(self) -> bytes:
        """Raise ClientGoneError when the rest will not come."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        self.complete = not message.get("more_body", False)
        return message.get("body", b"")
