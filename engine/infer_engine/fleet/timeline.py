"""What happened to one request, moment by moment, in bounded memory; nothing is written per token.

Moments are seconds of the fleet's clock. What a moment is made of stays as it came: documents are made when
somebody asks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from infer_engine.protocol import Timeline, TimelineEntry, TimelineKind, TtftSplit

#: Entries of one request, about 200 bytes each: the first ones and the latest.
MOST_ENTRIES = 48
FIRST_ENTRIES = 32
#: Chunks of one prefill that are told on their own; of more, the first ones, the last and how many between.
MOST_CHUNKS = 3


class Moment(NamedTuple):
    kind: TimelineKind
    at_s: float
    replica: str | None = None
    reason: str | None = None
    tokens: int | None = None
    blocks: int | None = None
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class GatewayMoments:
    """Of a request that came over HTTP: its head was there, its whole body, it was known who sends it, and
    tokenizing it (a wait for a thread included) began and ended."""

    arrived_s: float
    received_s: float
    authenticated_s: float
    tokenizing_s: float
    tokenized_s: float
    prompt_tokens: int


class TimelineLog:
    """``split`` divides the time to the first byte of the answer: each moment of it belongs to one part."""

    __slots__ = (
        "_chunks",
        "_entries",
        "_gateway",
        "_omitted",
        "_prefill_s",
        "_queue_s",
        "_replica",
        "_since_s",
        "_stage",
        "_submitted_s",
        "first_byte_s",
        "first_token_s",
        "is_over",
    )

    def __init__(self) -> None:
        self._entries: list[Moment] = []
        self._omitted = 0
        self._chunks = 0
        self._gateway: GatewayMoments | None = None
        self._submitted_s = 0.0
        #: Where it was last: another one is a move.
        self._replica: str | None = None
        #: What it does since ``_since_s`` until its first token: wait ("queue") or "prefill".
        self._stage: str | None = None
        self._since_s = 0.0
        self._queue_s = 0.0
        self._prefill_s = 0.0
        self.first_token_s: float | None = None
        self.first_byte_s: float | None = None
        self.is_over = False

    # --- what happens --------------------------------------------------------------------------------------

    def submitted(self, at_s: float, gateway: GatewayMoments | None) -> None:
        """The fleet took it."""
        self._gateway, self._submitted_s = gateway, at_s
        self._stage, self._since_s = "queue", at_s
        if gateway is None:
            self._add(Moment("arrived", at_s))
            return
        self._add(Moment("arrived", gateway.arrived_s))
        self._add(Moment("received", gateway.received_s))
        self._add(Moment("authenticated", gateway.authenticated_s))
        self._add(Moment("tokenized", gateway.tokenized_s, tokens=gateway.prompt_tokens))

    def held(self, at_s: float, why: str | None = None) -> None:
        """No replica has it (any more)."""
        if self.is_over:
            return
        self._waits(at_s)
        self._add(Moment("held", at_s, reason=why))

    def placed(self, at_s: float, replica: str, why: str | None = None) -> None:
        if self._entries and self._entries[-1].kind == "held" and self._entries[-1].at_s == at_s:
            self._entries.pop()  # it was held for no time
        moved = self._replica is not None and self._replica != replica
        self._add(Moment("moved" if moved else "routed", at_s, replica, why))
        self._add(Moment("queued", at_s, replica))
        self._replica = replica

    def admitted(self, at_s: float, blocks: int, *, resumed: bool) -> None:
        """Into the batch; the step that begins then computes the first of its tokens."""
        if self._stage == "queue":
            at_s = max(at_s, self._since_s)
            self._queue_s += at_s - self._since_s
            self._stage, self._since_s = "prefill", at_s
        self._add(Moment("resumed" if resumed else "admitted", at_s, self._replica, blocks=blocks))

    def chunk(self, at_s: float, tokens: int) -> None:
        """So many tokens of its prompt were computed by a step that ended then."""
        self._chunks += 1
        moment = Moment("prefill", at_s, self._replica, tokens=tokens)
        if self._chunks <= MOST_CHUNKS:
            self._add(moment, same_chunks=True)
        else:
            last = self._entries[-1]
            self._entries[-1] = moment._replace(omitted=last.omitted + 1)

    def first_token(self, at_s: float) -> None:
        if self._stage == "prefill":
            self._prefill_s += at_s - self._since_s
            self.first_token_s = at_s
        self._stage = None
        self._add(Moment("first_token", at_s, self._replica))

    def first_byte(self, at_s: float) -> bool:
        """The first byte of the answer was given to the connection; False when one was before."""
        if self.first_byte_s is not None:
            return False
        self.first_byte_s = at_s
        self._add(Moment("first_byte", at_s))
        return True

    def whole_sent(self, at_s: float) -> None:
        """A whole answer was given to the connection: its first byte says nothing of the time to it."""
        self._add(Moment("first_byte", at_s, reason="whole answer"))

    def preempted(self, at_s: float, mode: str, freed_blocks: int, redo_tokens: int) -> None:
        self._waits(at_s)
        self._add(Moment("preempted", at_s, self._replica, mode, redo_tokens, freed_blocks))

    def finished(self, at_s: float, reason: str, tokens: int, freed_blocks: int | None) -> None:
        self.is_over = True
        self._add(Moment("finished", at_s, self._replica, reason, tokens, freed_blocks))

    def _waits(self, at_s: float) -> None:
        if self._stage == "prefill":
            self._prefill_s += max(0.0, at_s - self._since_s)
            self._stage, self._since_s = "queue", at_s

    def _add(self, moment: Moment, *, same_chunks: bool = False) -> None:
        if not same_chunks:
            self._chunks = 0
        if len(self._entries) >= MOST_ENTRIES:
            del self._entries[FIRST_ENTRIES]
            self._omitted += 1
        self._entries.append(moment)

    # --- what it amounts to --------------------------------------------------------------------------------

    def split(self) -> TtftSplit:
        """As far as it is known: None where a part is not over, or where no byte is sent before the end. The
        parts sum to ``total``, which is None while one of them is."""
        gateway_s = tokenize_s = send_s = None
        if self._gateway is not None:
            tokenize_s = self._gateway.tokenized_s - self._gateway.tokenizing_s
            gateway_s = self._submitted_s - self._gateway.received_s - tokenize_s
        known = self.first_token_s is not None
        queue_s = self._queue_s if known else None
        prefill_s = self._prefill_s if known else None
        if self.first_token_s is not None and self.first_byte_s is not None:
            send_s = max(0.0, self.first_byte_s - self.first_token_s)
        return summed(gateway_s, tokenize_s, queue_s, prefill_s, send_s)

    @property
    def first_token_after_s(self) -> float:
        """How long it waited and prefilled, as far as that is over."""
        return self._queue_s + self._prefill_s

    def split_so_far(self, now_s: float) -> TtftSplit | None:
        """Of one that waits for its first byte, with its present age: survivors alone flatter. None when it
        does not wait for one, or did not come over HTTP."""
        if self._gateway is None or self.first_byte_s is not None or self.is_over:
            return None
        done = self.split()
        queue_s, prefill_s = self._queue_s, self._prefill_s
        if self._stage == "queue":
            queue_s += now_s - self._since_s
        elif self._stage == "prefill":
            prefill_s += now_s - self._since_s
        send_s = now_s - self.first_token_s if self.first_token_s is not None else 0.0
        return summed(done.gateway, done.tokenize, queue_s, prefill_s, send_s)

    def document(self, request: str, moment: Callable[[float], float], *, simulated: bool) -> Timeline:
        """``moment`` turns seconds of the fleet's clock into Unix seconds."""
        began_s = self._entries[0].at_s if self._entries else 0.0
        return Timeline(
            request=request,
            simulated=simulated,
            began_at=moment(began_s),
            entries=[
                TimelineEntry(
                    kind=each.kind,
                    at_s=each.at_s - began_s,
                    replica=each.replica,
                    reason=each.reason,
                    tokens=each.tokens,
                    blocks=each.blocks,
                    omitted=each.omitted,
                )
                for each in self._entries
            ],
            omitted=self._omitted,
            omitted_after=FIRST_ENTRIES if self._omitted else None,
            ttft_split_s=self.split(),
            last_at=moment(self._entries[-1].at_s) if self._entries else None,
        )


def summed(
    gateway_s: float | None,
    tokenize_s: float | None,
    queue_s: float | None,
    prefill_s: float | None,
    send_s: float | None,
) -> TtftSplit:
    total_s = None
    if (
        gateway_s is not None
        and tokenize_s is not None
        and queue_s is not None
        and prefill_s is not None
        and send_s is not None
    ):
        total_s = gateway_s + tokenize_s + queue_s + prefill_s + send_s
    return TtftSplit(
        gateway=gateway_s,
        tokenize=tokenize_s,
        queue=queue_s,
        prefill=prefill_s,
        send=send_s,
        total=total_s,
    )
