"""Part ``router``: what it takes to decide where one request goes, in a large fleet.

The real placing, from the hashing of the prompt to the message that is sent, on replicas that are only told
about: each has a batch, and between two decisions some of them have stepped, admitted and finished. Once
with prompts that nobody has, once with beginnings that one or all replicas hold.
"""

from collections.abc import Sequence
from random import Random
from time import perf_counter_ns

from infer_engine.benchmark.results import Result, result
from infer_engine.benchmark.setup import Setup
from infer_engine.fleet.feed import Feed
from infer_engine.fleet.generation import Generation, GenerationSpec
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.loads import Loads
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.prefix_index import MOST_HASHES, HeldPrefixes
from infer_engine.fleet.routing import Routing
from infer_engine.model.sampling import Sampling
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import Ready, StepReport, ToReplica
from infer_engine.replica.socket_reader import Sent
from infer_engine.runner.runner import RunnerInfo

REPLICAS = 1_000
#: Requests in each batch.
RUNNING = 16
PROMPT_TOKENS = 2_048
BLOCK = 16
DECISIONS = 400
#: Replicas of which something was heard that changes their load, and others that only decoded, between two
#: decisions.
CHANGED = 10
DECODED = 200
WANTED_US = 2_000.0

_INFO = RunnerInfo(
    model="none",
    vocab_size=100,
    context_length=100_000,
    kv_blocks=20_000,
    block_size=BLOCK,
    kv_bytes_per_token=1,
    weight_bytes=0,
    device="none",
    dtype="none",
)


def _spec(prompt: Sequence[int]) -> GenerationSpec:
    return GenerationSpec(prompt=tuple(prompt), max_tokens=64, sampling=Sampling(), stop_token_ids=())


def _sent(_peer: bytes, _message: ToReplica) -> Sent:
    return "sent"


class LargeFleet:
    """What the router sees of ``replicas`` replicas. Its clock stands still."""

    def __init__(self, replicas: int, indexed_blocks: int, running: int = RUNNING) -> None:
        self.random = Random(1)
        self.ledger = Ledger(Feed(lambda: 0.0), lambda: 0.0)
        self.handles = {f"r{number}": _ready_handle(f"r{number}") for number in range(replicas)}
        self.prefixes = HeldPrefixes(indexed_blocks)
        loads = Loads(self.ledger, 1_024)
        self.placer = Placer(
            self.ledger, self.handles, loads, Routing(self.ledger, loads, self.prefixes), most_held=1
        )
        self._serial = 0
        #: A beginning that everybody holds.
        self.common = self._fresh(PROMPT_TOKENS)
        #: Beginnings that one replica each holds.
        self.own: list[tuple[int, ...]] = []
        blocks = PROMPT_TOKENS // BLOCK
        for _ in range(max(1, indexed_blocks // blocks)):
            self.own.append(self._fresh(PROMPT_TOKENS))
            self.decide(self.own[-1])
        for handle in self.handles.values():
            common = self._generation(self.common)
            tracked = self.ledger.enter(common)
            self.placer.routing.choose(tracked, {handle.id: handle})
            self.prefixes.add(handle.id, tracked.chain)
            self.ledger.forget(tracked)
            for _ in range(running):
                request = self.ledger.enter(self._generation((1, 2, 3)))
                self.ledger.place(request, handle.id)
                request.state = "running"
                request.generation.append(7, 0.0, None)
            loads.changed(handle.id)

    def decide(self, prompt: tuple[int, ...]) -> str:
        """Place a request and end it; the replica that got it."""
        generation = self._generation(prompt)
        self.placer.take(generation)
        request = self.ledger.live[generation.id]
        replica = generation.replica or ""
        generation.append(7, 0.0, None)
        self.ledger.finish(request, "stop")
        return replica

    def decide_us(self, prompt: tuple[int, ...]) -> float:
        generation = self._generation(prompt)
        began = perf_counter_ns()
        self.placer.take(generation)
        taken_us = (perf_counter_ns() - began) / 1_000
        self.ledger.finish(self.ledger.live[generation.id], "cancelled")
        return taken_us

    def go_on(self, changed: int, decoded: int) -> None:
        """Some replicas step."""
        ids = self.random.sample(list(self.handles), min(changed + decoded, len(self.handles)))
        for position, replica in enumerate(ids):
            handle = self.handles[replica]
            report = StepReport(
                incarnation=0,
                step=1,
                duration_s=0.01,
                running=RUNNING,
                waiting=0,
                decode_tokens=RUNNING,
                prefill_tokens=int(position < changed),
                kv_used=self.random.randrange(_INFO.kv_blocks // 2),
                kv_free=0,
                kv_cached=0,
            )
            handle.hear(report, 0.0, 0.0)
            self.placer.loads.heard(handle, report)

    def fresh_prompt(self) -> tuple[int, ...]:
        return self._fresh(PROMPT_TOKENS)

    def behind(self, beginning: tuple[int, ...]) -> tuple[int, ...]:
        """Half of ``beginning`` and something new."""
        return beginning[: PROMPT_TOKENS // 2] + self._fresh(PROMPT_TOKENS // 2)

    def _fresh(self, tokens: int) -> tuple[int, ...]:
        return tuple(self.random.randrange(100_000) for _ in range(tokens))

    def _generation(self, prompt: tuple[int, ...]) -> Generation:
        self._serial += 1
        return Generation(id=f"{self._serial:06x}", spec=_spec(prompt), arrived_s=0.0)


def _ready_handle(replica: str) -> ReplicaHandle:
    handle = ReplicaHandle(replica, _sent)
    ready = Ready(
        incarnation=0,
        info=_INFO,
        admit_limit=18_000,
        batch_limit=13_000,
        max_running=256,
        token_budget=2_048,
    )
    handle.hear(ready, 0.0, 0.0)
    handle.state = "ready"
    return handle


def measure(setup: Setup) -> list[Result]:
    fleet = LargeFleet(max(4, REPLICAS // setup.shrink), max(500, MOST_HASHES // setup.shrink))
    prompts = {
        "a prompt that nobody has": fleet.fresh_prompt,
        "a beginning that one has": lambda: fleet.behind(fleet.random.choice(fleet.own)),
        "a beginning that all have": lambda: fleet.behind(fleet.common),
    }
    results: list[Result] = []
    for name, prompt in prompts.items():
        p95s: list[float] = []
        for _ in range(setup.repeats):
            taken: list[float] = []
            for _ in range(max(20, DECISIONS // setup.shrink)):
                fleet.go_on(CHANGED, DECODED)
                taken.append(fleet.decide_us(prompt()))
            p95s.append(sorted(taken)[len(taken) * 95 // 100])
        setup.say(f"  {name}: p95 {min(p95s):.0f} to {max(p95s):.0f} us")
        what = f"router: p95 of a decision, {len(fleet.handles)} replicas, {name}"
        results.append(result(what, "us", p95s, wanted=WANTED_US, bound="most"))
    return results
