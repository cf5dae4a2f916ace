"""What one look at somebody else's server told, before anything is compared with looks before it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from infer_engine.foreign.page import Buckets
from infer_engine.protocol import Kv, ReplicaState, RequestRow

#: Rows of one server: ranks beyond this are not shown.
MAX_ENGINES = 256
#: Nobody has counted so far: a float does not tell such a number from the next.
MOST = 2**53
#: Reasons of one kind, as label values: more are no reasons. And how long one may be.
MAX_REASONS, MAX_REASON_CHARS = 32, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What only ever grows while the server lives, by our names: generated, prompt, preemptions,
    prefix_queries, prefix_hits, steps; and histograms: ttft, itl, queue. A name that is missing was not
    told."""

    counters: dict[str, float] = field(default_factory=dict[str, float])
    histograms: dict[str, Buckets] = field(default_factory=dict[str, Buckets])
    #: Finer than a counter of the same name, and not to be relied on to grow: put together of two pages.
    live: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One row: a data-parallel rank, or the whole server. ``counts`` are its own; what a server tells only
    for all its ranks together is in the reading."""

    id: str
    state: ReplicaState = "ready"
    running: int | None = None
    waiting: int | None = None
    max_running: int | None = None
    kv: Kv = field(default_factory=Kv)
    #: 0..1 where the pool's size is not told.
    kv_used_ratio: float | None = None
    counts: Counts = field(default_factory=Counts)
    waiting_reasons: dict[str, int] = field(default_factory=dict[str, int])
    #: Generated tokens per second as the server itself says, where it tells no counter to work it out of.
    tokens_per_s: float | None = None
    #: None where the server does not tell its requests.
    rows: list[RequestRow] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All text in it is the server's: untrusted."""

    product: str
    model: str
    version: str | None = None
    context_length: int | None = None
    engines: list[Engine]
    #: Of all ranks together, where that is how the server counts.
    shared: Counts = field(default_factory=Counts)
    #: Since its start, by reason.
    finished: dict[str, int] = field(default_factory=dict[str, int])
    #: When its process began (Unix seconds), where it says so.
    started_at: float | None = None
    #: What an operator should know of how it was read.
    note: str = ""


def whole(value: float | None) -> int | None:
    """A count; what is negative is none, nor what nobody can have counted."""
    return None if value is None or not 0 <= value < MOST else round(value)


def tally(sums: Mapping[str, float]) -> dict[str, int]:
    """Counts by reason, of a label that the server fills."""
    counts: dict[str, int] = {}
    for reason, value in list(sums.items())[:MAX_REASONS]:
        if (count := whole(value)) is not None:
            name = reason[:MAX_REASON_CHARS]
            counts[name] = counts.get(name, 0) + count
    return counts


def apart(engines: list[Engine]) -> list[Engine]:
    """Rows whose labels came to the same name get a number behind it."""
    found: dict[str, Engine] = {}
    for engine in engines:
        id = engine.id
        number = 2
        while id in found:
            id, number = f"{engine.id}-{number}", number + 1
        found[id] = replace(engine, id=id)
    return list(found.values())


def row_id(label: str) -> str:
    """A row's name made of a rank's label: ``e0`` for rank 0. Of anything else only letters, digits and
    dashes."""
    kept = "".join(
        letter for letter in label.lower() if letter.isascii() and (letter.isalnum() or letter == "-")
    )
    kept = kept.strip("-")[:32]
    return f"e{kept}" if not kept or kept.isdigit() else kept
