"""What a router is compared on: three kinds of arrivals, and what becomes of them on a simulated fleet."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from infer_engine.fleet.generation import GenerationSpec
from infer_engine.fleet.router import Policy, choose
from infer_engine.model.sampling import Sampling
from support.routing_rules import CacheAware, least_loaded, round_robin
from support.simulated_fleet import Arrival, SimulatedBench, run, token

MODEL = "llama-8b@1×h100"
REPLICAS = 8
#: Small pools, so that no replica can keep every shared beginning.
SETTINGS = {"kv_blocks": 4_000, "max_running": 64, "host_blocks": 0}

#: By name: a new policy each time, since some remember.
RULES: dict[str, Callable[[], Policy]] = {
    "ours": lambda: choose,
    "round robin": lambda: round_robin,
    "least loaded": lambda: least_loaded,
    "cache-aware": CacheAware,
}


def _asked(prompt: tuple[int, ...], output: int) -> GenerationSpec:
    return GenerationSpec(
        prompt=prompt, max_tokens=output, sampling=Sampling(), stop_token_ids=(), tier="interactive"
    )


def _tokens(random: Random, count: int) -> tuple[int, ...]:
    first = random.randrange(10_000_000)
    return tuple(token(each) for each in range(first, first + count))


def prefix_heavy(seed: int, count: int) -> Iterator[Arrival]:
    """64 shared beginnings of 1,000 to 4,000 tokens, some far more popular than others, with a question of
    their own behind each."""
    random = Random(seed)
    beginnings = [_tokens(random, random.randint(1_000, 4_000)) for _ in range(64)]
    weights = [1 / (rank + 1) ** 0.8 for rank in range(64)]
    at_s = 0.0
    for _ in range(count):
        at_s += random.expovariate(180.0)
        beginning = random.choices(beginnings, weights)[0]
        question = _tokens(random, random.randint(20, 300))
        yield Arrival(at_s, _asked(beginning + question, random.randint(16, 160)))


def uniform(seed: int, count: int) -> Iterator[Arrival]:
    """Nothing is shared."""
    random = Random(seed)
    at_s = 0.0
    for _ in range(count):
        at_s += random.expovariate(110.0)
        yield Arrival(at_s, _asked(_tokens(random, random.randint(100, 4_000)), random.randint(16, 160)))


def adversarial(seed: int, count: int) -> Iterator[Arrival]:
    """What draws a router that follows beginnings into a heap: most begin with the same 1,000 tokens and go
    on with long tails of their own, they come in bursts, and a few are huge."""
    random = Random(seed)
    beginning = _tokens(random, 1_000)
    at_s, left = 0.0, 0
    for _ in range(count):
        if not left:
            at_s += random.expovariate(3.0)
            left = random.randint(10, 60)
        left -= 1
        at_s += random.expovariate(2_000.0)
        kind = random.random()
        if kind < 0.05:
            prompt, output = _tokens(random, random.randint(6_000, 12_000)), random.randint(4, 16)
        elif kind < 0.85:
            prompt, output = beginning + _tokens(random, random.randint(50, 2_000)), random.randint(16, 300)
        else:
            prompt, output = _tokens(random, random.randint(50, 500)), random.randint(16, 300)
        yield Arrival(at_s, _asked(prompt, output))


WORKLOADS: dict[str, Callable[[int, int], Iterator[Arrival]]] = {
    "prefix-heavy": prefix_heavy,
    "uniform": uniform,
    "adversarial": adversarial,
}


@dataclass(frozen=True)
class Outcome:
    ttft_p95_s: float
    hit_ratio: float


def outcome(workload: str, policy: Policy, seed: int, count: int, run_dir: Path) -> Outcome:
    """``count`` requests of ``workload`` on a fleet with that policy. The first tenth is left out: caches are
    empty then."""

    async def drill(bench: SimulatedBench) -> Outcome:
        bench.feed.clear()
        made = await bench.play(WORKLOADS[workload](seed, count))
        await bench.finished(*made)
        waits = sorted(each.emitted_s[0] - each.arrived_s for each in made[count // 10 :])
        measures = bench.fleet.measures.of.values()
        queries = sum(each.prefix_queries_tokens for each in measures)
        hits = sum(each.prefix_hit_tokens for each in measures)
        return Outcome(waits[len(waits) * 95 // 100], hits / queries)

    return run(drill, run_dir, simulate=MODEL, replicas=REPLICAS, seed=seed, policy=policy, **SETTINGS)
