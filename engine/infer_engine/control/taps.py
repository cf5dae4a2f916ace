"""The token tap: the text of a few requests as it is generated. It reads each generation by a cursor, so it
holds nothing up and nothing grows for a slow reader."""

import asyncio
import time
from collections.abc import AsyncGenerator

import msgspec

from infer_engine.control.context import Context
from infer_engine.control.problems import echo
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, refuse
from infer_engine.model.tokenizer import IncrementalDetokenizer, Tokenizer
from infer_engine.protocol import RequestRow, TokenDelta

MAX_REQUESTS = 16
#: At most this often is new text sent.
MAX_HZ = 10.0
#: Tokens before the tap was opened that are sent at most.
MAX_TAIL_TOKENS = 2_048
#: Tokens decoded per message, so that a big backlog does not hold up the server.
MAX_BATCH_TOKENS = 512
HEARTBEAT_S = 2.0


def parse_tap_query(requests: str | None) -> list[str]:
    """Request ids of ``?requests=a,b``; Refusal when there are none or too many."""
    ids = list(dict.fromkeys(each for each in (requests or "").split(",") if each))
    if not 1 <= len(ids) <= MAX_REQUESTS:
        raise refuse(
            400,
            "invalid_field",
            "requests does not fit.",
            f"from 1 to {MAX_REQUESTS} request ids are allowed, got {len(ids)} ({echo(requests)}).",
            field="requests",
            numbers={"given": len(ids), "allowed": MAX_REQUESTS},
        )
    return ids


class _Reader:
    """One request's tokens from a cursor on; their text only where a tokenizer is given."""

    def __init__(self, generation: Generation, tokenizer: Tokenizer | None) -> None:
        self._generation = generation
        self._detokenizer = None if tokenizer is None else IncrementalDetokenizer(tokenizer)
        self._cursor = max(0, len(generation.emitted) - MAX_TAIL_TOKENS)
        self.ended = False

    def read(self, fleet: Fleet) -> TokenDelta | None:
        """What came since the last call, None when nothing did. ``fleet`` knows what its clock's moments
        are."""
        generation = self._generation
        start = self._cursor
        tokens = generation.emitted[start : start + MAX_BATCH_TOKENS]
        self._cursor += len(tokens)
        self.ended = generation.finished and self._cursor == len(generation.emitted)
        if not tokens and not self.ended:
            return None
        pieces = [] if self._detokenizer is None else list(map(self._detokenizer.push, tokens))
        rest = self._detokenizer.flush() if self._detokenizer is not None and self.ended else ""
        times = generation.emitted_s
        last = self._cursor - 1
        return TokenDelta(
            request=generation.id,
            index=start,
            text="".join(pieces) + rest,
            at=fleet.moment(times[last] if tokens else fleet.now()),
            tokens=len(tokens),
            finish_reason=generation.finish_reason if self.ended else None,
            itl_s=times[last] - times[last - 1] if tokens and last > 0 else None,
            gaps_s=[times[at] - times[at - 1] if at else None for at in range(start, self._cursor)],
            characters=[len(piece) for piece in pieces],
        )


class TokenTap:
    """``gone`` are requests that ended and whose text the server no longer has: the tap says how they
    ended. Without ``content`` it tells when tokens came, and not what they say."""

    def __init__(
        self,
        context: Context,
        generations: list[Generation],
        gone: list[RequestRow],
        *,
        content: bool = True,
    ) -> None:
        self._context = context
        tokenizer = context.tokenizer if content else None
        self._readers = [_Reader(generation, tokenizer) for generation in generations]
        self._gone = gone
        self._encoder = msgspec.json.Encoder()

    async def messages(self) -> AsyncGenerator[bytes]:
        """``event: tokens`` messages until all requests have ended; a comment line when it is quiet for
        long."""
        ended = [_ending(row) for row in self._gone]
        yield self._encode(ended) or b": tap\n\n"
        sent_s = time.monotonic()
        while self._readers:
            fleet = self._context.fleet
            deltas = [delta for reader in self._readers if (delta := reader.read(fleet)) is not None]
            self._readers = [reader for reader in self._readers if not reader.ended]
            if deltas or time.monotonic() - sent_s > HEARTBEAT_S:
                yield self._encode(deltas) or b": quiet\n\n"
                sent_s = time.monotonic()
            if self._readers and await self._stopping_within(1 / MAX_HZ):
                return

    def _encode(self, deltas: list[TokenDelta]) -> bytes:
        return b"".join(b"event: tokens\ndata: %s\n\n" % self._encoder.encode(delta) for delta in deltas)

    async def _stopping_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._context.stopping.wait()
        except TimeoutError:
            return False
        return True


def _ending(row: RequestRow) -> TokenDelta:
    return TokenDelta(
        request=row.id,
        index=row.generated_tokens,
        text="",
        at=time.time(),
        tokens=0,
        finish_reason=row.finish_reason,
    )
