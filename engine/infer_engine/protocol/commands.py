"""What operators ask."""

from typing import Any, Literal

from msgspec import Struct

from infer_engine.protocol.words import DrainMode, Tier


class Drain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: DrainMode | None = None
    deadline_s: float | None = 300.0
    on_deadline: Literal["cancel", "wait"] = "wait"
    force: bool = False
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Undrain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Fence(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replica is broken, now: its requests go elsewhere without its help, its process is killed, and none
    is started in its place before ``Release``."""

    #: Its output is not to be trusted: requests for which it has made tokens end with an error, and nothing
    #: goes on from those. Those for which it has made none start over in any case.
    suspect: bool = False
    #: Even the last ready replica.
    force: bool = False
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Release(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start a fenced replica again."""

    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Restart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Drain a replica, end its process and start another. What it still has at the deadline goes on as after
    a crash."""

    mode: DrainMode | None = None
    deadline_s: float = 60.0
    #: Even the last ready replica.
    force: bool = False
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Scale(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many replicas there are to be, the fenced ones not counted. Those too many are drained and ended,
    one after another: the ``victims`` first, then those that serve the least."""

    replicas: int
    victims: list[str] = []
    #: How long each victim may drain; then what it still has goes on as after a crash.
    deadline_s: float = 300.0
    #: Even below one ready replica.
    force: bool = False
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Shed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pause the batch tier on all replicas, or let it go on. What of it runs is preempted and stays
    queued."""

    on: bool
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class SetHeadroom(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Move a mark. ``headroom = total - limit``; exactly one of ``percent`` and ``blocks`` is given, both are
    *headroom* (what stays free of new admissions), not the limit. ``tier`` batch moves ``batch_limit``."""

    replica: str | None = None
    percent: float | None = None
    blocks: int | None = None
    tier: Tier = "interactive"
    revert_after_s: float | None = None
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Cancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class CancelWhere(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cancel every live request that ``where`` selects, such as ``tenant=acme and age_s>60``. ``expect`` is
    how many the caller thinks these are; a dry run needs none, and lists them."""

    where: str
    expect: int | None = None
    #: More than so many are not cancelled at once.
    max: int = 100
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Preempt(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take the blocks of a running request; it keeps its tokens and goes on later, at the head of its tier,
    or (``to``) on another replica."""

    to: str | None = None
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class TraceRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request of a recorded trace. Its prompt is made up, of exactly so many tokens; its answer has
    exactly ``output_tokens``."""

    #: Seconds from the trace's beginning; they never fall.
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    tier: Tier = "interactive"


class Inject(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Test traffic: an open loop at ``rate_per_s`` (1 where nothing is given), a closed loop that keeps
    ``concurrency`` requests in flight, or the arrivals of ``trace``: one of the three."""

    profile: str = "chat"
    rate_per_s: float | None = None
    #: Where nothing is given 60, or as long as the trace.
    duration_s: float | None = None
    #: Of all requests; None leaves it to the profile.
    tier: Tier | None = None
    seed: int = 0
    concurrency: int | None = None
    #: With the profile ``trace``.
    trace: list[TraceRequest] | None = None
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class StopInjection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class ChangeLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change live limits of a replica, or of all, by name: all that are given or none, between two steps."""

    limits: dict[str, int]
    replica: str | None = None
    revert_after_s: float | None = None
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class ChangeTenant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change what a tenant (of the path; ``*`` is all that have no limits of their own) may use. ``limits``
    holds fields of TenantLimits; null lifts one, those not given stay. ``forget`` drops all of them."""

    limits: dict[str, Any] = {}
    forget: bool = False
    revert_after_s: float | None = None
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


#: Everything that can be asked.
Command = (
    Drain
    | Undrain
    | Fence
    | Release
    | Restart
    | Scale
    | Shed
    | SetHeadroom
    | Cancel
    | CancelWhere
    | Preempt
    | Inject
    | StopInjection
    | ChangeLimits
    | ChangeTenant
)
