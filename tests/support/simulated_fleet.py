"""A simulated fleet that runs without sockets, threads or waiting: the same seed gives the same events.

``run(drill, …)`` makes the fleet and calls ``drill(bench)`` in simulated time, so ``asyncio.sleep`` in it
takes simulated seconds and no real ones."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec
from infer_engine.fleet.feed import FeedItem
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, GenerationSpec
from infer_engine.fleet.router import Policy, choose
from infer_engine.fleet.simulated import simulated_fleet
from infer_engine.model.sampling import Sampling
from infer_engine.protocol import Event, EventKind, Step, Tier
from infer_engine.replica.launch_inproc import InprocReplicas
from infer_engine.settings import ReplicaSettings, ServerSettings
from support.virtual_loop import LoopClock, run_virtually

T = TypeVar("T")

#: Unix seconds at which simulated time begins.
EPOCH_AT = 1_800_000_000.0


@dataclass
class Arrival:
    at_s: float
    spec: GenerationSpec


@dataclass
class SimulatedBench:
    """A running simulated fleet and all that its feed said."""

    fleet: Fleet
    replicas: InprocReplicas
    feed: list[FeedItem] = field(default_factory=list[FeedItem])

    def log(self) -> bytes:
        """Everything that happened, in order: one JSON line each."""
        return b"\n".join(map(msgspec.json.encode, self.feed))

    def events(self, kind: EventKind) -> list[Event]:
        return [item for item in self.feed if isinstance(item, Event) and item.kind == kind]

    def steps(self, replica: str | None = None) -> list[Step]:
        steps = [item for item in self.feed if isinstance(item, Step)]
        return [step for step in steps if replica in (None, step.replica)]

    async def play(self, arrivals: Iterable[Arrival]) -> list[Generation]:
        """Submit each when it arrives; returns when the last one has."""
        made: list[Generation] = []
        for arrival in arrivals:
            await asyncio.sleep(max(0.0, arrival.at_s - self.fleet.now()))
            made.append(self.fleet.submit(arrival.spec))
        return made

    async def finished(self, *generations: Generation, within_s: float = 3_600.0) -> None:
        """Wait for their ends, in simulated seconds."""
        deadline_s = self.fleet.now() + within_s
        for generation in generations:
            while not generation.finished:
                left_s = deadline_s - self.fleet.now()
                assert await generation.beyond(len(generation.emitted), left_s), f"{generation.id} stands"


def spec(
    prompt_tokens: int,
    max_tokens: int,
    *,
    tier: Tier = "interactive",
    first: int = 0,
    tenant: str = "default",
    synthetic: bool = False,
) -> GenerationSpec:
    """``first`` tells prompts apart: equal ones share the prefix cache."""
    return GenerationSpec(
        prompt=tuple(token(each) for each in range(first, first + prompt_tokens)),
        max_tokens=max_tokens,
        sampling=Sampling(),
        stop_token_ids=(),
        tier=tier,
        tenant=tenant,
        synthetic=synthetic,
    )


#: Every simulated model has at least so many tokens in its vocabulary.
_TOKENS = 100_000


def token(number: int) -> int:
    """One of the vocabulary; of higher numbers one that looks drawn, so that runs of them do not meet."""
    return number if number < _TOKENS else (number * 2_654_435_761 % 2**32) * _TOKENS >> 32


def arrivals(seed: int, count: int, rate_per_s: float, *, most_prompt: int = 4_000) -> Iterator[Arrival]:
    """An open loop of mixed requests, both tiers, two tenants."""
    random = Random(seed)
    at_s = 0.0
    for _ in range(count):
        at_s += random.expovariate(rate_per_s)
        yield Arrival(
            at_s,
            spec(
                random.randint(1, most_prompt),
                random.randint(1, 200),
                tier="batch" if random.random() < 0.3 else "interactive",
                first=random.choice((0, random.randint(0, 90_000))),
                tenant=random.choice(("blue", "green")),
            ),
        )


def run(
    drill: Callable[[SimulatedBench], Awaitable[T]],
    run_dir: Path,
    *,
    simulate: str = "70b@4×h100",
    replicas: int = 3,
    seed: int = 7,
    load_s: float = 0.0,
    policy: Policy = choose,
    rebalance: bool = False,
    **replica: Any,
) -> T:
    """What ``drill`` returns. ``replica`` are settings of the replicas."""

    async def main() -> T:
        clock = LoopClock(asyncio.get_running_loop())
        settings = ServerSettings(
            simulate=simulate,
            replicas=replicas,
            seed=seed,
            rebalance=rebalance,
            replica=ReplicaSettings(**{"max_running": 256, **replica}),
        )
        made = simulated_fleet(
            settings,
            clock,
            wall=lambda: EPOCH_AT + clock.now(),
            achieved_speed=lambda: None,
            run_dir=run_dir,
            load_s=load_s,
            policy=policy,
        )
        bench = SimulatedBench(made.fleet, made.replicas)
        made.fleet.feed.subscribe(bench.feed.append)
        await made.fleet.start()
        try:
            while not made.fleet.ready:  # noqa: ASYNC110  simulated time passes
                await asyncio.sleep(0.01)
            return await drill(bench)
        finally:
            await made.fleet.stop()

    return run_virtually(main())
