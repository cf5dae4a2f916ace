"""From a request and the replicas that admit to a choice: who is asked, what each holds, and the books of
what was sent where."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from infer_engine.fleet.health import health
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.loads import Loads
from infer_engine.fleet.prefix_index import HeldPrefixes, extend_chain
from infer_engine.fleet.router import Ask, Choice, Load, Policy, choose
from infer_engine.fleet.tracked import Tracked
from infer_engine.replica.handle import ReplicaHandle

#: What a replica that has said nothing for so many real seconds (idle ones say something every second), nor
#: for STALE_STEPS of its longest recent steps, said last counts as old.
STALE_S = 2.5
STALE_STEPS = 2


@dataclass(slots=True)
class Routing:
    ledger: Ledger
    loads: Loads
    #: None where replicas keep no prefix cache.
    prefixes: HeldPrefixes | None
    policy: Policy = choose
    _turn: int = 0
    _block_size: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.ledger.on_leave(self._left)

    def choose(self, request: Tracked, candidates: Mapping[str, ReplicaHandle]) -> Choice | None:
        """Who of those that admit gets it; None when none has room. One that has stalled gets it only when
        all have."""
        now_s = self.ledger.clock()
        loads: list[Load] = []
        stalled: list[Load] = []
        of = self.loads.of
        for handle in candidates.values():
            load = of(handle)
            heard_s, stepped_s = handle.heard_s, handle.last_step_s
            recently_s = now_s - STALE_S * handle.pace
            if (
                handle.bad is None
                and heard_s is not None
                and heard_s >= recently_s
                and (handle.work_since_s is None or (stepped_s is not None and stepped_s >= recently_s))
            ):
                load.stale = False
                loads.append(load)
            else:
                load.stale = _is_stale(handle, now_s)
                (stalled if self.is_stalled(handle) else loads).append(load)
        self._turn += 1
        generation = request.generation
        tokens = len(generation.spec.prompt) + len(generation.emitted)
        held = self.held_tokens(request, candidates)
        return self.policy(loads or stalled, Ask(tokens, held, self._turn, request.chain))

    def is_stalled(self, handle: ReplicaHandle) -> bool:
        has_work = self.ledger.has_any(handle.id)
        return health(handle, self.ledger.clock(), has_work=has_work) in ("stalled", "bad")

    def placed(self, request: Tracked, handle: ReplicaHandle, choice: Choice) -> None:
        """It was sent there: from now on it counts, and so does what it will leave in the cache."""
        request.routed_because = str(choice)
        request.known_blocks = request.expected_cached_tokens = 0
        if self.prefixes is not None and handle.info is not None:
            request.known_blocks = self.prefixes.blocks_of(handle.id, request.chain)
            size = self._block_size[handle.id] = handle.info.block_size
            request.expected_cached_tokens = request.known_blocks * size
            self.prefixes.add(handle.id, request.chain)
        self.loads.placed(handle, request)

    def evicted(self, replica: str, hashes: Iterable[bytes]) -> None:
        """It has reused blocks that were found under these."""
        if self.prefixes is not None:
            self.prefixes.remove(replica, hashes)

    def forget(self, replica: str) -> None:
        """A life of it ended: nothing that was known of it holds."""
        self.loads.changed(replica)
        if self.prefixes is not None:
            self.prefixes.forget(replica)

    def held_tokens(self, request: Tracked, candidates: Mapping[str, ReplicaHandle]) -> Mapping[str, int]:
        """Of its tokens, how many from the beginning each of them probably has in its cache."""
        info = next((each.info for each in candidates.values() if each.info is not None), None)
        if self.prefixes is None or info is None:
            return {}
        generation = request.generation
        size = info.block_size
        tokens = (
            (*generation.spec.prompt, *generation.emitted) if generation.emitted else generation.spec.prompt
        )
        extend_chain(request.chain, generation.spec.tenant, tokens, size)
        # The newest token is always computed, or there would be nothing to sample from.
        most = (len(tokens) - 1) // size
        return {each: min(held, most) * size for each, held in self.prefixes.held(request.chain).items()}

    # --- inside --------------------------------------------------------------------------------------------

    def _left(self, request: Tracked, replica: str) -> None:
        """It is not there any more. What was computed stays in the cache; what was not has never been."""
        self.loads.changed(replica)
        if self.prefixes is None:
            return
        if not request.is_prefilled:
            self.prefixes.remove(replica, request.chain[request.known_blocks :])
            return
        generation = request.generation
        # The KV of the last token was not computed: nobody asked for the one behind it.
        tokens = (*generation.spec.prompt, *generation.emitted[:-1])
        extend_chain(request.chain, generation.spec.tenant, tokens, self._block_size[replica])
        self.prefixes.add(replica, request.chain)


def _is_stale(handle: ReplicaHandle, now_s: float) -> bool:
    if handle.heard_s is None:
        return True
    silence_s = now_s - handle.heard_s
    if silence_s <= STALE_S * handle.pace:
        return False
    return silence_s > STALE_STEPS * max(handle.step_times_s, default=0.0)
