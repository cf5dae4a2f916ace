"""A live request as the fleet follows it: the generation, where it stands, and what its replica last said of
it."""

from dataclasses import dataclass, field

from infer_engine.fleet.departure import Departure, MoveReason
from infer_engine.fleet.generation import Generation
from infer_engine.protocol import FinishReason, RequestState, WaitingReason
from infer_engine.replica.messages import CoreRow


@dataclass(frozen=True, slots=True)
class Intent:
    """Somebody asked for its end; the replica has yet to say that it came."""

    reason: FinishReason
    code: str
    actor: str


@dataclass(slots=True, eq=False)
class Tracked:
    """``state``, ``blocks`` and ``core`` come from its replica's reports and observations, newest wins."""

    generation: Generation
    #: Since when it waits, while it does: arrival, or the last preemption.
    waiting_since_s: float
    state: RequestState = "waiting"
    core: CoreRow | None = None
    blocks: int = 0
    #: Why it is held at the gateway, while no replica has it.
    held_because: WaitingReason | None = None
    intent: Intent | None = None
    #: Replicas that refused it after it was sent there.
    refusals: int = 0
    #: Set while it is on its way from one replica to another.
    departure: Departure | None = None
    #: When it came to where it is.
    placed_s: float = 0.0
    #: How often it was moved from one queue to another, by nobody's word.
    rebalanced: int = 0
    #: It was preempted where it is, and its KV is kept in the host's memory there.
    swapped: bool = False
    #: When it was preempted last, and who asked for that last.
    preempted_s: float | None = None
    preempt_actor: str = ""
    #: Replicas in a row that died with it, of their own, before it got a token there.
    losses: int = 0
    #: Tokens emitted when it was placed where it is: a token beyond these means that its prefill is done.
    emitted_before: int = 0
    #: Chained hashes of its full blocks of tokens, as far as they were computed: what the router goes by.
    chain: list[bytes] = field(default_factory=list[bytes])
    #: Of its tokens, those whose KV was believed to be in the cache of the replica to which it was sent.
    expected_cached_tokens: int = 0
    #: Blocks of ``chain`` that were known to be there before it was sent.
    known_blocks: int = 0
    #: It must match something, and where it is nobody could go on within that once it was broken off.
    pinned: bool = False
    #: Why it is where it is, in a few words; None before it was first placed.
    routed_because: str | None = None

    @property
    def id(self) -> str:
        return self.generation.id

    @property
    def is_prefilled(self) -> bool:
        return len(self.generation.emitted) > self.emitted_before

    @property
    def is_bound(self) -> bool:
        """Its client has the beginning of an answer that can only be gone on with where it is, or where
        somebody keeps to constraints from any point on."""
        generation = self.generation
        return self.pinned and bool(generation.emitted) and not generation.may_start_over

    @property
    def known_tokens(self) -> int:
        """Of its prompt and its output."""
        return len(self.generation.spec.prompt) + len(self.generation.emitted)

    def departs(
        self, source: str, why: MoveReason, *, to: str | None = None, actor: str = "", note: str = ""
    ) -> None:
        """It is to go on elsewhere. Why it was first to do so stands."""
        if self.departure is None:
            has_run = self.state == "running" or bool(self.generation.emitted)
            self.departure = Departure(source=source, why=why, has_run=has_run, to=to, actor=actor, note=note)

    def restart_wait(self) -> None:
        """It was placed or lost its place: nothing that a replica said of it holds any more."""
        self.state = "waiting"
        self.core = None
        self.blocks = 0
        self.held_because = None
        self.swapped = False
        self.emitted_before = len(self.generation.emitted)

    def start_over(self) -> None:
        """From its prompt: nothing that was generated is to be trusted."""
        self.generation.start_over()
        self.emitted_before = 0
        self.chain = []

    def needs_blocks(self, block_size: int) -> int:
        """Blocks that its admission takes: all tokens known so far and the next one."""
        return -(-(self.known_tokens + 1) // block_size)

    def queued_prefill_tokens(self) -> int:
        """Tokens whose KV has yet to be computed before it emits its next one."""
        if self.is_prefilled:
            return 0
        core = self.core
        # Until it runs nobody has looked into the cache for it.
        computed = self.expected_cached_tokens
        if core is not None and core.state == "running":
            computed = core.computed_tokens
        return max(0, self.known_tokens - computed)
