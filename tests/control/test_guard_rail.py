"""Real users come first: test traffic is held back while they wait, and goes when they suffer."""

import asyncio
import time
from collections.abc import AsyncGenerator

import pytest
from infer_engine.control.guard_rail import MOST_WAITING_PER_REPLICA, may_send, suffering
from infer_engine.control.operations import Operations
from infer_engine.control.real_ttft import BASELINE_S, FEWEST_SAMPLES, RealTtft
from infer_engine.control.traffic import Injector
from infer_engine.fleet.measures import Measures
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import Inject, RequestRow
from support.fleets import Bench, running_fleet, until
from support.replicas import Clock


def row(**changes: object) -> RequestRow:
    fields: dict[str, object] = {
        "id": "req-1",
        "tenant": "t",
        "tier": "interactive",
        "replica": "r0",
        "state": "waiting",
        "prompt_tokens": 3,
        "age_s": 6.0,
        "queue_wait_s": 6.0,
        "waiting_reason": "kv",
        **changes,
    }
    return RequestRow(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", ["kv", "headroom", "slots", "token_budget", "behind", "loading", None])
def test_real_users_suffer_when_they_wait_whatever_for(reason: str | None) -> None:
    because = suffering([row(waiting_reason=reason)], None, None)
    assert because is not None
    assert "req-1 has waited 6 s on r0" in because


@pytest.mark.parametrize("changes", [{"queue_wait_s": 4.0}, {"synthetic": True}, {"queue_wait_s": None}])
def test_they_do_not_suffer_otherwise(changes: dict[str, object]) -> None:
    assert suffering([row(**changes)], None, None) is None


@pytest.mark.parametrize(
    ("now_s", "before_s", "suffers"),
    [(1.3, 0.6, True), (1.1, 0.6, False), (1.3, None, False), (None, 0.6, False), (0.2, 0.01, False)],
)
def test_they_suffer_when_their_first_token_takes_twice_as_long(
    now_s: float | None, before_s: float | None, suffers: bool
) -> None:
    assert (suffering([], now_s, before_s) is not None) == suffers


def test_nothing_is_sent_while_a_real_request_waits() -> None:
    assert may_send([row(queue_wait_s=1.1)], 2) == 0
    assert may_send([row(queue_wait_s=0.9), row(synthetic=True)], 2) == 2 * MOST_WAITING_PER_REPLICA - 1
    assert may_send([row(synthetic=True)] * 50, 2) == 0


def test_ttft_is_that_of_real_requests_before_and_since() -> None:
    clock, measures = Clock(), Measures(["r0"], 0.0)
    ttft = RealTtft(measures, clock)

    def first_tokens(value_s: float, count: int, *, synthetic: bool = False) -> None:
        from infer_engine.fleet.measures import Sample

        for _ in range(count):
            measures._tell(Sample("ttft", "r0", value_s, synthetic))  # pyright: ignore[reportPrivateUsage]

    first_tokens(9.0, FEWEST_SAMPLES)
    clock.now_s += BASELINE_S + 1
    first_tokens(0.5, FEWEST_SAMPLES)
    clock.now_s += 1
    ttft.begin()
    assert (ttft.baseline_s, ttft.p95_s()) == (0.5, None)
    first_tokens(3.0, FEWEST_SAMPLES, synthetic=True)
    first_tokens(2.0, FEWEST_SAMPLES - 1)
    assert ttft.p95_s() is None
    first_tokens(2.0, 1)
    assert (ttft.baseline_s, ttft.p95_s()) == (0.5, 2.0)


@pytest.fixture
async def bench() -> AsyncGenerator[Bench]:
    async with running_fleet(replicas=1, kv_blocks=128, max_running=1, held=True) as bench:
        yield bench


@pytest.fixture
async def injector(bench: Bench, tokenizer: Tokenizer) -> AsyncGenerator[Injector]:
    operations = Operations(time.time, lambda _: None)
    yield Injector(bench.fleet, tokenizer, operations, 2048)
    await operations.close()


async def test_at_most_so_many_wait(bench: Bench, injector: Injector) -> None:
    injector.start(Inject(rate_per_s=50, duration_s=600))
    await until(lambda: injector.status().not_sent > 3)
    assert injector.status().sent == MOST_WAITING_PER_REPLICA
    await bench.step_until("r0", lambda: injector.status().sent > MOST_WAITING_PER_REPLICA)


async def test_a_waiting_user_holds_it_back_and_then_ends_it(bench: Bench, injector: Injector) -> None:
    users = [bench.submit(4, 4) for _ in range(2)]
    bench.ahead_s += 2.0
    injector.start(Inject(rate_per_s=50, duration_s=600))
    await until(lambda: injector.status().not_sent > 3)
    assert injector.status().sent == 0
    bench.ahead_s += 4.0
    await until(lambda: not injector.status().running)
    because = injector.status().stopped_because
    assert because is not None
    assert any(f"{user.id} has waited" in because for user in users)
    await asyncio.sleep(0)
