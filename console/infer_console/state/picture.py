"""All that the console knows at one moment, immutable.

The collector thread folds messages into its own state and hands out a new ``Picture`` a few times a second;
views are pure functions of a picture, so live, paused, past and replayed are the same code.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from infer_engine.protocol import (
    Alarm,
    Event,
    Fleet,
    Operation,
    Replica,
    RequestRow,
    Role,
    TenantLimits,
    Timeline,
    Tokenized,
    Totals,
)

from infer_console.state.audit import AuditPicture
from infer_console.state.finding import Finding

LinkState = Literal["starting", "connecting", "live", "stale", "lost"]

#: ``BlockMap.kinds`` values.
FREE, CACHED, USED = 0, 1, 2
#: ``BlockMap.owner`` value of a block without a single owner index.
NO_OWNER = 0xFFFF


@dataclass(frozen=True, slots=True)
class Link:
    """The connection to one server. ``age_s`` is the time since its last message: the age of the view."""

    url: str
    state: LinkState = "connecting"
    age_s: float | None = None
    bytes_per_s: float | None = None
    reconnects: int = 0
    resyncs: int = 0
    #: Why there is no link, or what the engine's start-up is doing; server text, not yet safe to print.
    message: str = ""


@dataclass(frozen=True, slots=True)
class BlockMap:
    """One byte or number per block. ``owner[i]`` indexes ``owners`` (the first owner of a shared block)."""

    total: int
    block_size: int
    kinds: bytes
    owner: "array[int]"
    refs: "array[int]"
    owners: tuple[str, ...]
    #: Of each cached block the quarter (1 to 4) of the eviction order that it is in: 1 goes first; 0 where
    #: the server does not tell. Of others it means nothing. Empty: of none it is told.
    evict_quarters: bytes = b""
    #: Of each cached block for how long nobody has held it: the number (from 1) of the last of the protocol's
    #: IDLE_STEPS_S that has passed; 0 and empty as with the quarters.
    idle_steps: bytes = b""


@dataclass(frozen=True, slots=True)
class Series:
    """Samples at a fixed interval, oldest first; None where nothing was known."""

    interval_s: float
    values: tuple[float | None, ...] = ()
    #: Samples ever taken: cells that fold several keep their boundaries while old samples fall off the front.
    taken: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaPicture:
    status: Replica
    #: By request id; ``order`` lists running in batch order, then waiting in admission order.
    rows: dict[str, RequestRow] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    blocks: BlockMap | None = None
    step: int = 0
    at: float = 0.0
    #: Keys: kv, running, waiting, tokens_per_s, ttft_p99, itl_p99, queue_wait_p99.
    history: dict[str, Series] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamPicture:
    """The tail of one request's generated text; untrusted. ``lines`` are split at newlines, bounded. Of the
    latest tokens, one entry each, the last of them the last token: ``gaps_s`` to the one before it, ``ats``
    when it came by the server's clock (Unix seconds), ``characters`` of ``text`` that are its own (empty
    where no text is told)."""

    request: str
    text: str
    tokens: int
    dropped_chars: int = 0
    last_itl_s: float | None = None
    finish_reason: str | None = None
    gaps_s: tuple[float | None, ...] = ()
    ats: tuple[float, ...] = ()
    characters: tuple[int, ...] = ()
    #: When the last of it came here (Unix seconds).
    heard_at: float | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The fleet's requests as the server listed them at ``at``: the oldest ones, and by state how many more
    there are."""

    rows: tuple[RequestRow, ...]
    at: float
    omitted: Mapping[str, int] = field(default_factory=dict)
    #: Those that ended lately, as they ended, the latest first: also those that did before the console came.
    ended: tuple[RequestRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """Of the whole fleet: who waits longest, the longest first, and what tenants may use. ``limits`` are of
    those that have their own, by name (untrusted text); None before they were told."""

    waiting: tuple[RequestRow, ...] = ()
    default_limits: TenantLimits | None = None
    limits: Mapping[str, TenantLimits] | None = None


@dataclass(frozen=True, slots=True)
class TimelinePicture:
    """What happened to one request. ``timeline`` is None before it came, and where it does not: ``message``
    then says why (server text, not yet safe to print)."""

    request: str
    timeline: Timeline | None = None
    message: str = ""
    #: When it was told (Unix seconds).
    at: float | None = None


@dataclass(frozen=True, slots=True)
class SentencePicture:
    """The operator's sentence as the server's tokenizer cuts it. ``tokenized`` is None before that came, and
    where it does not: ``message`` then says why (server text, not yet safe to print)."""

    text: str
    tokenized: Tokenized | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the contexts file says of the server that is watched."""

    name: str | None = None
    #: Of its name; None for the theme's accent.
    colour: str | None = None
    production: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    at: float
    link: Link
    environment: Environment = Environment()
    read_only: bool = False
    #: What the server lets this console do; None where it does not say.
    role: Role | None = None
    #: Whom the server takes this console for; None where it does not say.
    subject: str | None = None
    #: What this console calls its user where it attaches: others of that subject are told apart by it.
    claim: str | None = None
    embedded: bool = False
    server_version: str | None = None
    capabilities: frozenset[str] = frozenset()
    fleet: Fleet | None = None
    totals: Totals | None = None
    replicas: dict[str, ReplicaPicture] = field(default_factory=dict)
    held: tuple[RequestRow, ...] = ()
    #: Oldest first, bounded.
    events: tuple[Event, ...] = ()
    operations: tuple[Operation, ...] = ()
    streams: dict[str, StreamPicture] = field(default_factory=dict)
    alarms: tuple[Alarm, ...] = ()
    #: What the doctor found, causes first.
    findings: tuple[Finding, ...] = ()
    #: None while nobody looks at it.
    audit: AuditPicture | None = None
    #: Fleet-wide; the same keys as ReplicaPicture.history.
    history: dict[str, Series] = field(default_factory=dict)
    #: Why no tokens come for ``streams``, empty when they do; server text, not yet safe to print.
    streams_message: str = ""
    #: All requests of the fleet, while somebody looks at them; else only the rosters that are looked at are
    #: known.
    listing: Listing | None = None
    #: Why there is none, or why it is old; server text, not yet safe to print.
    listing_message: str = ""
    #: None while nobody looks at it, and in the past.
    demand: Demand | None = None
    #: Of the request whose timeline is looked at.
    timeline: TimelinePicture | None = None
    #: What was typed to be cut into tokens.
    sentence: SentencePicture | None = None
    #: What the clock of ``at``, the server's, shows more than this machine's; 0 where they agree.
    ahead_s: float = 0.0
