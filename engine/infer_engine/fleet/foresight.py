"""Whether a request can still be answered before its deadline, going by how long others took lately.

A queue that is longer than deadlines allow serves nobody: whoever comes to its head has no time left, is
begun and is cut. So at the door a request is turned away, and told when to come back, when its wait and its
answer would take longer than it has. Who has no deadline is never turned away for this, and nobody is while a
place is free.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from infer_engine.fleet.endings import OVERDUE
from infer_engine.fleet.generation import GenerationSpec
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.loads import Loads
from infer_engine.fleet.router import KV_PRESSURE_FROM, Load
from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import Tier
from infer_engine.replica.handle import ReplicaHandle

#: What the newest answer counts for in the running means.
WEIGHT = 0.1
#: How many times as long as others' an answer is taken to become, where nothing bounds it sooner.
LONG = 2.0
#: The share of its time that a request's wait and answer may be expected to take: expectations err.
SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Late:
    """``expected_s`` until its end where ``left_s`` are left; in ``over_s`` the queue may be short enough."""

    expected_s: float
    left_s: float

    @property
    def over_s(self) -> float:
        return self.expected_s - SHARE * self.left_s


@dataclass(slots=True)
class Foresight:
    """Running means over all requests that ended well: their tokens, and seconds per token from admission to
    end. None before the first."""

    ledger: Ledger
    loads: Loads
    _answer_tokens: float | None = None
    _token_s: float | None = None

    def __post_init__(self) -> None:
        self.ledger.on_finish(self._ended)

    def late(self, spec: GenerationSpec, handles: Iterable[ReplicaHandle]) -> Late | None:
        """None when it has no deadline, may be in time at one of ``handles``, or nobody can tell."""
        left_s, tokens, token_s = spec.deadline_s, self._answer_tokens, self._token_s
        if left_s is None or tokens is None or token_s is None:
            return None
        turns = min((_turns(self.loads.of(handle), spec.tier) for handle in handles), default=0.0)
        if not turns:
            return None
        expected_s = (turns * tokens + min(spec.max_tokens, LONG * tokens)) * token_s
        return Late(expected_s, left_s) if expected_s > SHARE * left_s else None

    def _ended(self, request: Tracked) -> None:
        generation = request.generation
        tokens = len(generation.emitted)
        overdue = generation.error_code == OVERDUE
        ended = generation.finish_reason in ("stop", "length") or overdue
        if not ended or generation.admitted_s is None or not tokens:
            return
        token_s = (self.ledger.clock() - generation.admitted_s) / tokens
        if overdue:
            # Left out, they would make answers seem short that only the short ones of them survived.
            tokens = max(tokens, min(generation.spec.max_tokens, int(LONG * (self._answer_tokens or tokens))))
        self._answer_tokens = _towards(self._answer_tokens, tokens)
        self._token_s = _towards(self._token_s, token_s)


def _turns(load: Load, tier: Tier) -> float:
    """How many answers go by, one after another in each place, until a newcomer has a place; 0 when one is
    free. Where memory is what is short there are no more places than are taken."""
    blocks = load.kv_used_blocks + load.kv_promised_blocks
    roomy = blocks <= KV_PRESSURE_FROM * load.kv_total_blocks
    places = max(1, load.slots if roomy else load.running)
    ahead = load.waiting - (load.waiting_batch if tier == "interactive" else 0)
    return max(0, load.running + ahead + 1 - places) / places


def _towards(mean: float | None, newest: float) -> float:
    return newest if mean is None else mean + WEIGHT * (newest - mean)
