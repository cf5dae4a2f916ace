"""The real scheduler on a roofline clock."""

import pytest
from infer_engine.core.blocks import BlockPool
from infer_engine.core.limits import Limits
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from infer_engine.planner import PlanError, parse_deployment
from infer_engine.runner.runner import Runner
from infer_engine.runner.simulated_runner import SimulatedRunner


class Replica:
    """A scheduler and a simulated runner that share a virtual clock."""

    def __init__(
        self,
        deployment: str = "70b@4×h100",
        *,
        seed: int = 0,
        blocks: int | None = None,
        token_budget: int = 8192,
        max_running: int = 64,
    ) -> None:
        self.now_s = 0.0
        self.runner = SimulatedRunner(
            parse_deployment(deployment), block_size=16, advance=self.advance, seed=seed, kv_blocks=blocks
        )
        total = self.runner.info.kv_blocks
        limits = Limits(
            admit_limit=total, batch_limit=total, max_running=max_running, token_budget=token_budget
        )
        self.scheduler = Scheduler(BlockPool(total, 16), limits, self.runner.info.context_length)

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    def add(self, name: str, prompt: int, max_tokens: int, stop: frozenset[int] = frozenset()) -> Request:
        request = Request(
            id=name, prompt=[1] * prompt, max_tokens=max_tokens, arrival_s=self.now_s, stop_token_ids=stop
        )
        self.scheduler.add(request, self.now_s)
        return request

    def step(self) -> None:
        plan = self.scheduler.step(self.now_s)
        self.scheduler.commit(self.runner.execute(plan).tokens, self.now_s)

    def run(self) -> None:
        for _ in range(100_000):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError("does not end")


def test_it_is_a_runner_and_says_that_it_is_simulated() -> None:
    runner: Runner = Replica().runner
    assert runner.info.simulated
    assert runner.info.device == "4×H100"
    assert (runner.info.kv_blocks, runner.info.kv_bytes_per_token) == (30_517, 327_680)
    runner.close()


def test_decode_of_sixty_sequences_at_8k_takes_22_ms_a_step() -> None:
    replica = Replica()
    for index in range(60):
        replica.add(f"r{index}", prompt=8_000, max_tokens=100)
    while len(replica.scheduler.waiting) > 0:
        replica.step()
    for _ in range(2):
        replica.step()
    assert len(replica.scheduler.running) == 60
    assert not any(request.is_prefilling for request in replica.scheduler.running.values())
    replica.step()
    assert replica.runner.duration_s == pytest.approx(0.022, abs=0.0005)


def test_time_to_first_token_is_the_prefill_floor() -> None:
    replica = Replica(token_budget=8192)
    replica.add("a", prompt=8_000, max_tokens=1)
    replica.run()
    assert replica.now_s == pytest.approx(parse_deployment("70b@4×h100").prefill_s(8_000))


def test_chunked_prefill_keeps_a_decoding_neighbour_s_steps_short() -> None:
    def longest_step_s(token_budget: int) -> float:
        replica = Replica(token_budget=token_budget)
        stream = replica.add("stream", prompt=100, max_tokens=60)
        replica.step()
        replica.add("long", prompt=8_000, max_tokens=1)
        longest = 0.0
        while stream.state == "running":
            replica.step()
            longest = max(longest, replica.runner.duration_s)
        return longest

    assert longest_step_s(8192) > 5 * longest_step_s(512)


def test_the_same_seed_says_the_same_and_another_seed_something_else() -> None:
    def output(seed: int) -> list[int]:
        replica = Replica(seed=seed)
        request = replica.add("a", prompt=10, max_tokens=20)
        replica.run()
        return request.output

    assert output(1) == output(1)
    assert output(1) != output(2)


def test_preemption_changes_no_token_only_the_time() -> None:
    def outputs(blocks: int) -> tuple[list[list[int]], float, int]:
        replica = Replica(blocks=blocks)
        requests = [replica.add(f"r{index}", prompt=30, max_tokens=60) for index in range(8)]
        replica.run()
        return [request.output for request in requests], replica.now_s, replica.scheduler.counters.preemptions

    roomy, roomy_s, none = outputs(1_000)
    tight, tight_s, some = outputs(20)
    assert (none, some > 0) == (0, True)
    assert tight == roomy
    assert tight_s > roomy_s


def test_an_answer_is_as_long_as_asked_for_whatever_the_stop_tokens() -> None:
    plain = Replica()
    first = plain.add("a", prompt=4, max_tokens=8)
    plain.run()
    replica = Replica()
    request = replica.add("a", prompt=4, max_tokens=8, stop=frozenset(first.output))
    replica.run()
    assert (len(request.output), request.finish_reason) == (8, "length")
    assert not set(request.output) & set(first.output)


def test_the_pool_is_what_the_memory_holds_at_most() -> None:
    assert Replica(blocks=500).runner.info.kv_blocks == 500
    assert Replica(blocks=10**9).runner.info.kv_blocks == 30_517
    with pytest.raises(PlanError):
        Replica("70b@h100")
