"""Replicas below the process boundary: the real step loop and scheduler over a scripted runner."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from infer_engine.core.blocks import BlockPool
from infer_engine.core.limits import Limits
from infer_engine.core.plan import Plan
from infer_engine.core.scheduler import Scheduler
from infer_engine.core.swap import HostPool
from infer_engine.model.sampling import Sampling
from infer_engine.replica.messages import FromReplica, Submit, ToReplica
from infer_engine.replica.step_loop import Link, StepLoop
from infer_engine.runner.runner import RunnerInfo
from infer_engine.runner.step_output import StepOutput

T = TypeVar("T")

GATE_TIMEOUT_S = 100.0
FIRST_TOKEN = 1000


def runner_info(kv_blocks: int = 16, block_size: int = 4, context_length: int = 4096) -> RunnerInfo:
    return RunnerInfo(
        model="scripted",
        vocab_size=100_000,
        context_length=context_length,
        kv_blocks=kv_blocks,
        block_size=block_size,
        kv_bytes_per_token=64,
        weight_bytes=0,
        device="cpu",
        dtype="fp32",
    )


class ScriptedRunner:
    """The token after ``n`` known ones is FIRST_TOKEN + n. While it is held, each step waits to be
    allowed."""

    def __init__(self, info: RunnerInfo) -> None:
        self.info = info
        self.steps = 0
        self.error: str | None = None
        self.closed = False
        #: How long a step takes.
        self.pace_s = 0.0
        #: A step has been asked for and is not allowed yet.
        self.waiting_for_permission = False
        self._held = False
        self._permits = threading.Semaphore(0)

    def hold(self) -> None:
        self._held = True

    def allow(self, steps: int) -> None:
        self._permits.release(steps)

    def release(self) -> None:
        self._held = False
        self._permits.release(1)

    def execute(self, plan: Plan) -> StepOutput:
        if self._held:
            self.waiting_for_permission = True
            if not self._permits.acquire(timeout=GATE_TIMEOUT_S):
                raise RuntimeError("the test never let this step run")
            self.waiting_for_permission = False
        time.sleep(self.pace_s)
        self.steps += 1
        if self.error is not None:
            raise RuntimeError(self.error)
        return StepOutput(
            {
                chunk.request.id: FIRST_TOKEN + chunk.request.total_tokens
                for chunk in plan.chunks
                if chunk.samples
            }
        )

    def close(self) -> None:
        self.closed = True


@dataclass
class Clock:
    """Stands still until it is moved."""

    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class ScriptedLink:
    """Messages to and from the loop, in lists. Waiting moves the clock."""

    clock: Clock
    inbound: deque[ToReplica] = field(default_factory=deque)
    sent: list[FromReplica] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    #: False: the server does not keep up, so there is no room for offers.
    has_room: bool = True

    def receive(self, wait_s: float, most: int) -> list[ToReplica]:
        self.waits_s.append(wait_s)
        if not self.inbound:
            self.clock.now_s += wait_s
        return [self.inbound.popleft() for _ in range(min(most, len(self.inbound)))]

    def send(self, message: FromReplica) -> None:
        self.sent.append(message)

    def offer(self, message: FromReplica) -> bool:
        if self.has_room:
            self.sent.append(message)
        return self.has_room

    def of(self, kind: type[T]) -> list[T]:
        """What was sent of one kind, in order."""
        return [message for message in self.sent if isinstance(message, kind)]


def make_scheduler(
    info: RunnerInfo,
    *,
    admit_limit: int | None = None,
    max_running: int = 4,
    token_budget: int = 64,
    max_waiting: int = 100,
    prefix_cache: bool = False,
    host_blocks: int = 0,
) -> Scheduler:
    limit = info.kv_blocks if admit_limit is None else admit_limit
    limits = Limits(
        admit_limit=limit,
        batch_limit=limit,
        max_running=max_running,
        token_budget=token_budget,
        max_waiting=max_waiting,
    )
    pool = BlockPool(info.kv_blocks, info.block_size, prefix_cache=prefix_cache)
    return Scheduler(pool, limits, info.context_length, HostPool(host_blocks, "swap"))


def make_loop(
    runner: ScriptedRunner, scheduler: Scheduler, link: Link, clock: Callable[[], float], incarnation: int = 1
) -> StepLoop:
    return StepLoop(
        incarnation=incarnation,
        scheduler=scheduler,
        runner=runner,
        link=link,
        clock=clock,
        check_every_step=True,
    )


def submit(
    request_id: str, prompt_tokens: int = 4, max_tokens: int = 4, *, emitted: list[int] | None = None
) -> Submit:
    return Submit(
        id=request_id,
        prompt=list(range(prompt_tokens)),
        max_tokens=max_tokens,
        emitted=emitted or [],
        sampling=Sampling(temperature=0.0),
    )
