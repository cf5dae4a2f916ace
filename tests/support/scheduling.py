"""A scheduler with a fake runner beside it, driven step by step."""

from typing import Any

from simulation.core_modules import REAL, Core
from simulation.fake_runner import FakeRunner, token_at


class Rig:
    """Time advances by one second per request and step, so arrival order is the order of ``add``."""

    def __init__(
        self,
        core: Core = REAL,
        *,
        blocks: int = 16,
        block_size: int = 4,
        admit_limit: int | None = None,
        batch_limit: int | None = None,
        max_running: int = 8,
        token_budget: int = 64,
        max_waiting: int = 100,
        max_passes: int = 8,
        context: int = 10_000,
        prefix_cache: bool = False,
        host_blocks: int = 0,
        preempt_mode: str = "swap",
        cost: Any = None,
    ) -> None:
        self.core = core
        self.pool = core.BlockPool(blocks, block_size, prefix_cache=prefix_cache)
        limits = core.Limits(
            admit_limit=blocks if admit_limit is None else admit_limit,
            batch_limit=blocks if batch_limit is None else batch_limit,
            max_running=max_running,
            token_budget=token_budget,
            max_waiting=max_waiting,
            max_passes=max_passes,
        )
        self.host = core.HostPool(host_blocks, preempt_mode, cost)
        self.scheduler = core.Scheduler(self.pool, limits, context, self.host)
        self.runner = FakeRunner(blocks, block_size)
        self.now_s = 0.0
        self.requests: dict[str, Any] = {}
        self.ended: dict[str, Any] = {}

    def add(self, request_id: str, prompt: int = 4, max_tokens: int = 8, **fields: Any) -> Any:
        """Queue a request with ``prompt`` prompt tokens of its own, or with the prompt ``tokens``."""
        self.now_s += 1
        key = name_key(request_id)
        request = self.core.Request(
            id=request_id,
            prompt=fields.pop("tokens", None) or [key + position for position in range(prompt)],
            max_tokens=max_tokens,
            arrival_s=fields.pop("arrival_s", self.now_s),
            sampling=key,
            **fields,
        )
        self.scheduler.add(request, self.now_s)
        self.requests[request_id] = request
        return request

    def plan(self) -> Any:
        """Plan a step, note who ended in it, and check that everything adds up."""
        self.now_s += 1
        plan = self.scheduler.step(self.now_s)
        self._note(plan.finished)
        self.check()
        return plan

    def commit(self, plan: Any) -> list[Any]:
        finished = self.scheduler.commit(self.runner.execute(plan), self.now_s)
        self._note(finished)
        self.check()
        return finished

    def step(self) -> Any:
        """Plan, execute and commit one step; returns its plan."""
        plan = self.plan()
        self.commit(plan)
        return plan

    def run(self, at_most: int = 1000) -> int:
        """Step until nothing is left; returns the number of steps."""
        steps = 0
        while self.scheduler.has_work:
            assert steps < at_most, f"still at work: {list(self.scheduler.running)}, {self.waiting}"
            self.step()
            steps += 1
        return steps

    def check(self) -> None:
        assert self.core.violations(self.scheduler) == []

    def _note(self, finished: list[Any]) -> None:
        for finish in finished:
            assert finish.id not in self.ended
            self.ended[finish.id] = finish

    @property
    def running(self) -> list[str]:
        return list(self.scheduler.running)

    @property
    def waiting(self) -> list[str]:
        return [request.id for request in self.scheduler.waiting]

    def reason(self, request_id: str) -> tuple[str, str | None]:
        return self.scheduler.admission.reason(self.requests[request_id])

    def expected(self, request_id: str, count: int) -> list[int]:
        """The first ``count`` tokens that the request must generate, whatever happens to it."""
        key = self.requests[request_id].sampling
        return [token_at(key, position) for position in range(count)]


def name_key(request_id: str) -> int:
    """What a request's own prompt and its output follow from."""
    return sum(map(ord, request_id)) * 7919


def counts(plan: Any) -> dict[str, int]:
    """Tokens per request in a plan."""
    return {chunk.request.id: chunk.count for chunk in plan.chunks}


def admitted(plan: Any) -> list[str]:
    return [admission.id for admission in plan.admitted]


def preempted(plan: Any) -> list[str]:
    return [preemption.id for preemption in plan.preempted]
