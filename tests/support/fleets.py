"""A whole fleet in one process: everything real but the model and the process boundary. Replicas are threads
that speak over real sockets."""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from infer_engine.core.blocks import BlockPool
from infer_engine.core.scheduler import Scheduler
from infer_engine.fleet.feed import FeedItem
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, GenerationSpec
from infer_engine.fleet.spec_file import SpecDir
from infer_engine.model.sampling import Sampling
from infer_engine.protocol import Event, EventKind, Step, Tier
from infer_engine.replica.dealer import Dealer
from infer_engine.replica.limits_at_start import starting_limits
from infer_engine.replica.messages import (
    Failed,
    FromReplica,
    Ready,
    ReplicaConfig,
    Started,
    StepReport,
    TokenOut,
    ToReplica,
)
from infer_engine.replica.step_loop import StepLoop
from infer_engine.replica.wire import identity
from infer_engine.settings import ReplicaSettings, ServerSettings
from support.replicas import ScriptedRunner, make_loop, runner_info

DEADLINE_S = 60.0
#: Processes that import torch from a disk that nobody has read yet take longer than that.
START_S = 180.0


async def until(condition: Callable[[], object], what: str = "", within_s: float = DEADLINE_S) -> None:
    """Poll until ``condition`` is true; AssertionError when it does not become so."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, f"never happened: {what or condition}"
        await asyncio.sleep(0.002)


class ThreadReplica:
    """One life of a replica as a thread. ``kill`` is as abrupt as a thread can be: it says nothing any
    more."""

    def __init__(self, config: ReplicaConfig, number: int, launcher: "ThreadLauncher") -> None:
        self.config = config
        self.pid = 1_000_000 + number
        self.runner = ScriptedRunner(
            runner_info(config.settings.kv_blocks or 16, config.settings.block_size, launcher.context_length)
        )
        if launcher.held:
            self.runner.hold()
        self.error = launcher.load_error
        self.loop: StepLoop | None = None
        self._load_gate = launcher.load_gate
        self._mute = False
        #: What is known of whether the kernel killed it for want of memory.
        self.oom: bool | None = False
        self._ending = False
        self._asyncio = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._asyncio.create_future()
        self._dealer = Dealer(config.endpoint, identity(config.replica, config.incarnation), config.keys)
        self._thread = threading.Thread(target=self._main, name=f"{config.replica}.{config.incarnation}")
        self._thread.start()

    # what the fleet sees

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def hang_up(self) -> None:
        self._end()

    def kill(self) -> None:
        self._mute = True
        self._end()

    def fall_silent(self) -> None:
        """It goes on, and nobody hears of it."""
        self._mute = True

    async def stop(self) -> int | None:
        self._end()
        return await self.wait()

    def log_tail(self) -> str:
        return "(a thread has no log)"

    def cpu_s(self) -> float | None:
        return None

    def oom_killed(self) -> bool | None:
        return self.oom

    def cause(self) -> str | None:
        return None

    # the way to the server, for the step loop

    def receive(self, wait_s: float, most: int) -> list[ToReplica]:
        return self._dealer.receive(min(wait_s, 0.05), most)

    def send(self, message: FromReplica) -> None:
        if not self._mute:
            self._dealer.send(message)

    def offer(self, message: FromReplica) -> bool:
        return self._mute or self._dealer.offer(message)

    # the thread

    def _main(self) -> None:
        code = 1
        try:
            code = self._live()
        except RuntimeError as error:
            self.send(Failed(incarnation=self.config.incarnation, error=str(error)))
        finally:
            self._dealer.close()
            code = -9 if self._mute else code
            self._asyncio.call_soon_threadsafe(self._ended.set_result, code)

    def _live(self) -> int:
        config, info = self.config, self.runner.info
        self.send(Started(replica=config.replica, incarnation=config.incarnation, pid=self.pid))
        self._load_gate.wait(DEADLINE_S)
        if self._ending:
            return 0
        if self.error is not None:
            text, code = self.error
            self.send(Failed(incarnation=config.incarnation, error=text))
            return code
        limits = starting_limits(config.settings, info)
        pool = BlockPool(info.kv_blocks, info.block_size, prefix_cache=config.settings.prefix_cache)
        scheduler = Scheduler(pool, limits, info.context_length)
        loop = self.loop = make_loop(self.runner, scheduler, self, time.monotonic, config.incarnation)
        self.send(
            Ready(
                incarnation=config.incarnation,
                info=info,
                admit_limit=limits.admit_limit,
                batch_limit=limits.batch_limit,
                max_running=limits.max_running,
                token_budget=limits.token_budget,
            )
        )
        if not self._ending:  # else it was told between the two lines above
            loop.run()
        return 0

    def _end(self) -> None:
        self._ending = True
        if self.loop is not None:
            self.loop.stopping = True
        self._load_gate.set()
        self.runner.release()


@dataclass
class ThreadLauncher:
    """Starts threads where the real one starts processes, and remembers them."""

    context_length: int = 4096
    #: New runners wait for permission for each step.
    held: bool = False
    #: (error, exit code): new replicas fail while loading.
    load_error: tuple[str, int] | None = None
    #: Set: replicas finish loading at once.
    load_gate: threading.Event = field(default_factory=threading.Event)
    lives: dict[str, list[ThreadReplica]] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def __call__(self, config: ReplicaConfig, log_path: Path, threads: int) -> ThreadReplica:
        replica = ThreadReplica(config, next(self._numbers), self)
        self.lives.setdefault(config.replica, []).append(replica)
        return replica

    def now(self, replica: str) -> ThreadReplica:
        """The present life."""
        return self.lives[replica][-1]


class Bench:
    """A running fleet, its launcher, a clock that can be pushed, and all that the feed said."""

    def __init__(
        self, settings: ServerSettings, launcher: ThreadLauncher, spec_dir: SpecDir | None = None
    ) -> None:
        self.launcher = launcher
        self.ahead_s = 0.0
        self.fleet = Fleet(
            settings, launch=launcher, clock=lambda: time.monotonic() + self.ahead_s, spec_dir=spec_dir
        )
        self.feed: list[FeedItem] = []
        self.fleet.feed.subscribe(self.feed.append)

    def events(self, kind: EventKind) -> list[Event]:
        return [item for item in self.feed if isinstance(item, Event) and item.kind == kind]

    def steps(self, replica: str) -> list[Step]:
        return [item for item in self.feed if isinstance(item, Step) and item.replica == replica]

    def submit(
        self,
        prompt_tokens: int = 4,
        max_tokens: int = 4,
        *,
        tier: Tier = "interactive",
        synthetic: bool = False,
        client_id: str | None = None,
        streams: bool = False,
    ) -> Generation:
        return self.fleet.submit(spec(prompt_tokens, max_tokens, tier, synthetic, client_id, streams))

    async def heard(self, replica: str, requests: int) -> None:
        """Let a held replica step, one step at a time, until it reports so many requests."""
        while True:
            last = await self.one_step(replica)
            if last.running + last.waiting == requests:
                return

    async def step_until(self, replica: str, condition: Callable[[], object]) -> None:
        """Let a held replica step, one step at a time, until ``condition`` is true."""
        for _ in range(50):
            await self.one_step(replica)
            await asyncio.sleep(0)
            if condition():
                return
        raise AssertionError("not within 50 steps")

    async def one_step(self, replica: str) -> Step:
        """Let a held replica do one step."""
        steps = len(self.steps(replica))
        self.launcher.now(replica).runner.allow(1)
        await until(lambda: len(self.steps(replica)) > steps, "a step")
        return self.steps(replica)[-1]

    async def ready(self, count: int | None = None) -> None:
        wanted = len(self.fleet.replica_ids()) if count is None else count
        await until(lambda: len(self.fleet.capacity.ready_replicas()) >= wanted, f"{wanted} ready replicas")


def spec(
    prompt_tokens: int = 4,
    max_tokens: int = 4,
    tier: Tier = "interactive",
    synthetic: bool = False,
    client_id: str | None = None,
    streams: bool = False,
) -> GenerationSpec:
    return GenerationSpec(
        prompt=tuple(range(prompt_tokens)),
        max_tokens=max_tokens,
        sampling=Sampling(temperature=0.0),
        stop_token_ids=(),
        tier=tier,
        synthetic=synthetic,
        client_id=client_id,
        streams=streams,
    )


def lone_token(incarnation: int, request: str, index: int = 1) -> StepReport:
    """A report of a step that says nothing but one token, 6666, which no scripted model says."""
    return StepReport(
        incarnation=incarnation,
        step=1,
        duration_s=0.0,
        running=1,
        waiting=0,
        decode_tokens=1,
        prefill_tokens=0,
        kv_used=0,
        kv_free=0,
        kv_cached=0,
        tokens=[TokenOut(id=request, token=6666, index=index)],
    )


async def finished(*generations: Generation) -> None:
    for generation in generations:
        while not generation.finished:
            before = len(generation.emitted)
            assert await generation.beyond(before, DEADLINE_S), (
                f"{generation.id} stands still at {before} tokens"
            )


@asynccontextmanager
async def running_fleet(
    *,
    replicas: int = 2,
    kv_blocks: int = 16,
    block_size: int = 4,
    max_running: int = 4,
    max_waiting: int = 100,
    token_budget: int = 64,
    admit_limit_ratio: float = 1.0,
    held: bool = False,
    loaded: bool = True,
    load_error: tuple[str, int] | None = None,
    prefix_cache: bool = False,
    seed: int = 7,
    replace_stalled: bool = False,
    rebalance: bool = False,
    max_replicas: int | None = None,
    state: Path | None = None,
) -> AsyncGenerator[Bench]:
    """A fleet of threads; ready when ``loaded``. Held replicas stand still on purpose, so that stalled ones
    are replaced only where that is asked for; ``state`` is where specs outlive it."""
    settings = ServerSettings(
        replicas=replicas,
        seed=seed,
        replace_stalled=replace_stalled,
        rebalance=rebalance,
        max_replicas=max_replicas,
        replica=ReplicaSettings(
            block_size=block_size,
            kv_blocks=kv_blocks,
            max_running=max_running,
            max_waiting=max_waiting,
            token_budget=token_budget,
            admit_limit_ratio=admit_limit_ratio,
            prefix_cache=prefix_cache,
            batch_limit_ratio=admit_limit_ratio,
        ),
    )
    launcher = ThreadLauncher(held=held, load_error=load_error)
    if loaded or load_error:
        launcher.load_gate.set()
    spec_dir = SpecDir(state) if state is not None else None
    if spec_dir is not None:
        spec_dir.open()
    bench = Bench(settings, launcher, spec_dir)
    try:
        await bench.fleet.start()
        if loaded and load_error is None:
            await bench.ready()
        yield bench
    finally:
        for lives in launcher.lives.values():
            for life in lives:
                life.runner.release()
        launcher.load_gate.set()
        await bench.fleet.stop()
        if spec_dir is not None:
            spec_dir.close()
