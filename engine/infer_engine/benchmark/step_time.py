"""Part ``scheduler``: what a step costs beside the model: planning and committing it, and telling of it.

The real step loop, with a runner that does nothing and a link that encodes every message and sends it
nowhere, while steps take 30 ms of a clock of its own; once as it is when nobody looks closely, once as a
console has it, with the block map. Means over many steps, so that the looks between them are in it.
"""

from statistics import mean, median
from time import perf_counter_ns

from infer_engine.benchmark.results import Result, compared, result
from infer_engine.benchmark.setup import Setup
from infer_engine.core.blocks import BlockPool
from infer_engine.core.limits import Limits
from infer_engine.core.plan import Plan
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from infer_engine.replica.messages import Ack, FromReplica, Observe, StepReport, ToReplica
from infer_engine.replica.step_loop import StepLoop
from infer_engine.replica.wire import encode
from infer_engine.runner.runner import RunnerInfo
from infer_engine.runner.step_output import StepOutput

BLOCKS = 31_000
RUNNING = (16, 256)
WAITING = (100, 10_000)
STEPS = 300
STEP_S = 0.03
#: Observations a second: what a replica sends when nobody looks closely, and a console's.
LOOKS = {"unwatched": 0.0, "watched at 4 Hz": 4.0}
WANTED_US = 1000.0
#: Growth that noise may show where the work is the same.
FLAT = 1.2
_INFO = RunnerInfo(
    model="none",
    vocab_size=100,
    context_length=100_000,
    kv_blocks=BLOCKS,
    block_size=16,
    kv_bytes_per_token=1,
    weight_bytes=0,
    device="none",
    dtype="none",
)


class NoRunner:
    """Answers every plan at once."""

    info = _INFO

    def execute(self, plan: Plan) -> StepOutput:
        return StepOutput({chunk.request.id: 7 for chunk in plan.chunks if chunk.samples})

    def close(self) -> None:
        """There is nothing to free."""


class EncodingLink:
    """Acknowledges every report at the next turn. ``bytes`` that it would have sent."""

    def __init__(self, hz: float) -> None:
        self.bytes = 0
        self.observations = 0
        self._inbox: list[ToReplica] = [Observe(hz=hz, blocks=hz > 0)]

    def receive(self, wait_s: float, most: int) -> list[ToReplica]:
        taken, self._inbox = self._inbox, []
        return taken

    def send(self, message: FromReplica) -> None:
        self.bytes += len(encode(message))
        if isinstance(message, StepReport):
            self._inbox.append(Ack(1))

    def offer(self, message: FromReplica) -> bool:
        self.bytes += len(encode(message))
        self.observations += 1
        return True


def request(index: int) -> Request:
    return Request(
        id=f"r{index}",
        prompt=list(range(100 + index * 37 % 900)),
        max_tokens=100 + index * 53 % 400,
        arrival_s=float(index),
    )


def loaded(running: int, waiting: int) -> Scheduler:
    """A scheduler with ``running`` sequences decoding and ``waiting`` requests queued behind a full batch."""
    limits = Limits(
        admit_limit=BLOCKS, batch_limit=BLOCKS, max_running=running, token_budget=8192, max_waiting=1_000_000
    )
    scheduler = Scheduler(BlockPool(BLOCKS, 16), limits, context_length=100_000)
    for index in range(running + waiting):
        scheduler.add(request(index), 0.0)
    runner = NoRunner()
    for _ in range(40):
        scheduler.commit(runner.execute(scheduler.step(0.0)).tokens, 0.0)
    return scheduler


def step_us(running: int, waiting: int, steps: int, hz: float) -> float:
    """Mean of a whole turn of the step loop; the queue is kept at its length."""
    scheduler = loaded(running, waiting)
    now_s = 0.0
    link = EncodingLink(hz)
    loop = StepLoop(incarnation=1, scheduler=scheduler, runner=NoRunner(), link=link, clock=lambda: now_s)
    serial = running + waiting
    taken: list[int] = []
    for _ in range(steps):
        while len(scheduler.waiting) < waiting:
            scheduler.add(request(serial), now_s)
            serial += 1
        began = perf_counter_ns()
        loop.turn()
        taken.append(perf_counter_ns() - began)
        now_s += STEP_S
    return mean(taken) / 1000


def measure(setup: Setup) -> list[Result]:
    return [each for look, hz in LOOKS.items() for each in _measure_at(setup, look, hz)]


def _measure_at(setup: Setup, look: str, hz: float) -> list[Result]:
    steps = max(20, STEPS // setup.shrink)
    times: dict[tuple[int, int], list[float]] = {}
    for running in RUNNING:
        for waiting in WAITING:
            short = max(1, waiting // setup.shrink)
            samples = [step_us(running, short, steps, hz) for _ in range(setup.repeats)]
            times[running, waiting] = samples
            setup.say(f"  {look}, {running} running, {waiting} waiting: {median(samples):.0f} us a step")
    few, many = WAITING
    small, large = RUNNING
    return [
        *(
            result(
                f"scheduler and telemetry per step, {look}, {running} running, {waiting} waiting",
                "us",
                samples,
                wanted=WANTED_US if running == large else None,
                bound="most",
            )
            for (running, waiting), samples in times.items()
        ),
        compared(
            f"step time, {look}, {large} running, from {few} to {many} waiting",
            "us",
            times[large, many],
            f"{few} waiting",
            median(times[large, few]),
            wanted=FLAT,
            bound="most",
        ),
        compared(
            f"step time, {look}, {few} waiting, from {small} to {large} running",
            "us",
            times[large, few],
            f"{small} running",
            median(times[small, few]),
            wanted=large / small,
            bound="most",
        ),
    ]
