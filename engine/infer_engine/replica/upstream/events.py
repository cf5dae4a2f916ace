"""Server-sent events as somebody else's server writes them: one line each, bounded."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from infer_engine.foreign.asking import PIECES_A_TURN, entry
from infer_engine.foreign.not_understood import NotUnderstoodError

MAX_LINE_BYTES = 1 << 20
END = b"[DONE]"


class SaidError(Exception):
    """The server says in its stream that it failed. ``status`` is the code that it names, or 500."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """The JSON of each ``data:`` line. Raise NotUnderstoodError for what is none or has no end, SaidError
    where it says that it failed."""
    rest = bytearray()
    taken = 0
    async for chunk in chunks:
        taken += 1
        if taken % PIECES_A_TURN == 0:
            await asyncio.sleep(0)
        looked = len(rest)
        rest += chunk
        whole = rest.rfind(b"\n", looked) + 1  # what was there before has no end of a line
        lines = bytes(rest[:whole]).split(b"\n")
        del rest[:whole]
        if len(rest) > MAX_LINE_BYTES:
            raise NotUnderstoodError(f"a line of its stream is longer than {MAX_LINE_BYTES:,} bytes")
        for line in lines:
            name, _, data = line.strip().partition(b":")
            data = data.strip()
            if name not in (b"data", b"error") or not data or data == END:
                continue
            event = _decoded(data)
            error = event if name == b"error" else entry(event, "error")
            if error is not None:
                raise _said(error)
            yield event


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise NotUnderstoodError(f"its stream has an event that is no JSON: {str(error)[:80]}") from error


def _said(error: Any) -> SaidError:
    status = entry(error, "code")
    usable = isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600
    return SaidError(told_error(error), status if usable else 500)


def told_error(document: Any) -> str:
    """What an error document says, short."""
    inner = entry(document, "error")
    for each in (entry(document, "error", "message"), entry(document, "message"), inner, document):
        if isinstance(each, str) and each:
            return " ".join(each.split())[:200]
    return "without a word"
