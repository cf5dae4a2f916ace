"""What may be asked of test traffic, and what is told of what may not."""

from typing import Any

import pytest
from infer_engine.control.demand import Demand
from infer_engine.control.load import Pace, Size, predict_load
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import Inject, TraceRequest


def at(*arrivals_s: float, **more: Any) -> list[TraceRequest]:
    return [
        TraceRequest(**{"arrival_s": each, "prompt_tokens": 10, "output_tokens": 10, **more})
        for each in arrivals_s
    ]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"rate_per_s": 0.0}, "rate_per_s"),
        ({"rate_per_s": float("nan")}, "rate_per_s"),
        ({"rate_per_s": 501.0}, "rate_per_s"),
        ({"duration_s": 601.0}, "duration_s"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 4, "rate_per_s": 1.0}, "concurrency"),
        ({"profile": "ddos"}, "profile"),
        ({"profile": "trace"}, "trace"),
        ({"trace": at(0.0)}, "trace"),
        ({"profile": "trace", "trace": []}, "trace"),
        ({"profile": "trace", "trace": at(0.0), "rate_per_s": 2.0}, "trace"),
        ({"profile": "trace", "trace": at(0.0) * 10_001}, "trace"),
        ({"profile": "trace", "trace": at(1.0, 0.5)}, "trace[1].arrival_s"),
        ({"profile": "trace", "trace": at(-1.0)}, "trace[0].arrival_s"),
        ({"profile": "trace", "trace": at(0.0, prompt_tokens=0)}, "trace[0].prompt_tokens"),
        ({"profile": "trace", "trace": at(0.0, output_tokens=-3)}, "trace[0].output_tokens"),
        ({"profile": "trace", "trace": at(*[0.5] * 501)}, "trace[500].arrival_s"),
        ({"profile": "trace", "trace": at(0.0, 700.0)}, "trace"),
        ({"profile": "trace", "trace": at(9.0), "duration_s": 5.0}, "duration_s"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(Refusal) as refused:
        Demand.of(Inject(**asked))
    assert (refused.value.problem.status, refused.value.problem.field) == (422, field)


def test_defaults() -> None:
    demand = Demand.of(Inject())
    assert (demand.profile, demand.rate_per_s, demand.concurrency, demand.duration_s) == (
        "chat",
        1.0,
        None,
        60.0,
    )
    assert Demand.of(Inject(concurrency=3)).rate_per_s is None
    trace = Demand.of(Inject(profile="trace", trace=at(0.5, 700.0), duration_s=100.0))
    assert (trace.duration_s, len(trace.trace or [])) == (100.0, 1), "its beginning"
    assert list(trace.arrivals()) == [0.5]


PACE = Pace(prefill_s=lambda tokens: tokens / 1_000, step_s=lambda _sequences, _context: 0.01)


def load(rate: float | None = None, concurrency: int | None = None, pace: Pace | None = PACE) -> Any:
    return predict_load(
        [Size(100, 90)],
        rate_per_s=rate,
        concurrency=concurrency,
        replicas=2,
        block_size=16,
        pace=pace,
        most_in_flight=64,
    )


def test_in_flight_is_rate_times_stay() -> None:
    """Each stays 0.1 s of prefill and 90 steps of 10 ms, of which the others' prefills take 10 %."""
    told = load(rate=2.0)
    assert told.in_flight == pytest.approx(2.0 * 1.0 / 0.9)
    assert told.kv_blocks == pytest.approx(told.in_flight * (145 / 16 + 0.5))
    assert told.prefill_share == pytest.approx(0.1)


def test_a_closed_loop_has_the_rate_that_it_is_answered_at() -> None:
    told = load(concurrency=8)
    assert told.rate_per_s == pytest.approx(8 / (0.9 + 5 * 0.1))
    assert told.in_flight == 8


def test_more_than_can_be_served_piles_up_to_the_bound() -> None:
    told = load(rate=25.0)
    assert (told.saturated, told.in_flight) == (True, 64.0)


def test_what_nobody_knows_is_not_told() -> None:
    told = load(rate=2.0, pace=None)
    assert (told.in_flight, told.kv_blocks, told.prefill_share) == (None, None, None)
    assert (told.prompt_tokens, told.output_tokens, told.rate_per_s) == (100, 90, 2.0)
