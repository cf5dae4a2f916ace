"""What happened to one request, moment by moment."""

from msgspec import Struct

from infer_engine.protocol.figures import TtftSplit
from infer_engine.protocol.words import PROTOCOL_VERSION, TimelineKind


class TimelineEntry(Struct, frozen=True, kw_only=True):
    """``at_s`` is seconds since the timeline began. ``reason`` says why a replica was chosen (routed, moved),
    how it was preempted or ended, why it is held."""

    kind: TimelineKind
    at_s: float
    replica: str | None = None
    reason: str | None = None
    #: Of the prompt (tokenized), computed by this chunk (prefill), to redo (preempted), generated (finished).
    tokens: int | None = None
    #: Taken (admitted) or freed (preempted, finished).
    blocks: int | None = None
    #: Chunks before this one that have no entry.
    omitted: int = 0


class Timeline(Struct, frozen=True, kw_only=True):
    """What happened to one request. Entries are in order; a long life keeps its first and its latest ones:
    then ``omitted`` are missing after the first ``omitted_after``."""

    version: int = PROTOCOL_VERSION
    simulated: bool = False
    request: str
    began_at: float
    entries: list[TimelineEntry]
    omitted: int = 0
    omitted_after: int | None = None
    ttft_split_s: TtftSplit
    #: When its last entry was: seconds of a simulated clock are no real ones. None from servers that do not
    #: tell.
    last_at: float | None = None
