"""The recommended count, on incidents: a spike, slow growth, idleness, demand that comes and goes."""

import dataclasses
from collections.abc import Callable

import pytest
from infer_engine.fleet.outlook import Job
from infer_engine.fleet.outlook_desk import Minute
from infer_engine.fleet.outlook_words import of_tier
from infer_engine.fleet.scaling import DOWN_HOLD_S, Demand, Recommendation, Scaling
from infer_engine.fleet.seconds_words import seconds_words


def played(
    kv_at: Callable[[float], float],
    for_s: int,
    *,
    ready: int = 4,
    wait_at: Callable[[float], float] = lambda _now_s: 0.1,
    boot_s: float = 95.0,
    most: int = 16,
) -> list[Recommendation]:
    """``kv_at`` gives the demand in replicas' worth of KV; asked every 2 s."""
    scaling = Scaling(1, most, boot_s)
    return [
        scaling.recommend(
            Demand(
                now_s=float(now_s),
                ready=ready,
                coming=0,
                queue_wait_p95_s=wait_at(now_s),
                running=40,
                waiting=20 if wait_at(now_s) > 1 else 0,
                kv_needed_blocks=int(kv_at(now_s) * 1_000),
                kv_per_replica_blocks=1_000,
            )
        )
        for now_s in range(0, for_s, 2)
    ]


def counts(recommendations: list[Recommendation]) -> list[int]:
    """Without repeats."""
    made = [each.replicas for each in recommendations]
    return [count for place, count in enumerate(made) if place == 0 or made[place - 1] != count]


def test_a_spike_that_is_over_before_a_replica_could_help_moves_nothing() -> None:
    spike = played(lambda now_s: 9.0 if 100 <= now_s < 114 else 2.8, 200)
    assert counts(spike) == [4]


def test_slow_growth_is_met_a_boot_time_ahead() -> None:
    """Demand grows by a replica in five minutes; 4 replicas are full enough at 3.2."""
    grows = lambda now_s: 2.0 + now_s / 300  # noqa: E731
    early = played(grows, 600, boot_s=95.0)
    late = played(grows, 600, boot_s=0.0)

    def first_above(made: list[Recommendation]) -> int:
        return next(2 * place for place, each in enumerate(made) if each.replicas > 4)

    # Without a boot time it is told once 3.2 has been passed for the hold.
    assert 360 <= first_above(late) <= 384
    assert 80 <= first_above(late) - first_above(early) <= 100
    assert counts(early) == sorted(counts(early))


def test_long_waits_call_for_more_where_memory_does_not() -> None:
    made = played(lambda _: 1.0, 60, wait_at=lambda now_s: 12.0 if now_s >= 10 else 0.1)
    assert made[-1].replicas == 6
    assert made[-1].because.startswith("queue wait p95 12 s over 2 s for 4")
    assert made[-1].because.endswith("KV wanted 25 %; boot 95 s → 6 replicas")
    wanted = played(lambda _: 5.0, 60, wait_at=lambda _: 12.0)
    assert "; KV wanted 125 %; " in wanted[-1].because


def test_an_advice_that_is_kept_after_the_rush_says_so() -> None:
    """Else its figures, all small by then, contradict it."""
    made = played(lambda _: 1.0, 400, wait_at=lambda now_s: 12.0 if 10 <= now_s < 60 else 0.1)
    kept = made[50]
    assert kept.replicas == 6
    assert kept.because == (
        "queue wait p95 0.10 s; KV wanted 25 %; called for within the last 5 min → 6 replicas"
    )
    assert made[-1].because.endswith("fewer would have done for 5 min → 2 replicas")


def test_idleness_gives_back_slowly_and_never_below_the_least() -> None:
    made = played(lambda _: 0.0, 700)
    assert counts(made) == [4, 1]
    assert all(each.replicas == 4 for each in made[: int(DOWN_HOLD_S / 2) - 5])


def test_demand_that_comes_and_goes_moves_nothing() -> None:
    flaps = played(lambda now_s: 3.0 if now_s % 120 < 60 else 0.5, 1_200, boot_s=0.0)
    assert counts(flaps) == [4]


def calm(now_s: float, **fields: object) -> Demand:
    """Four replicas of which one would do."""
    quiet = Demand(now_s, 4, 0, 0.1, 4, 0, 400, 1_000, 64)
    return dataclasses.replace(quiet, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue_wait_p95_s": 6.7},
        {"queue_wait_p95_s": 6.7, "waiting": 9},
        {"late": True},
        {"ready": 3, "coming": 1, "unready": 1},
        {"running": 200},
    ],
    ids=["waited", "wait", "late", "lost", "slots"],
)
def test_fewer_are_never_advised_while_something_is_wrong_nor_soon_after(wrong: dict[str, object]) -> None:
    """Whatever the memory says: these wait for something else, or for who is not there."""
    scaling = Scaling(1, 16)
    for now_s in range(0, 290, 2):
        assert scaling.recommend(calm(now_s)).replicas == 4, "not before five minutes were seen"
    for now_s in range(290, 340, 2):
        assert scaling.recommend(calm(now_s, **wrong)).replicas >= 4
    for now_s in range(340, 630, 2):
        assert scaling.recommend(calm(now_s)).replicas >= 4
    after = scaling.recommend(calm(650))
    assert after.replicas == 1
    assert (
        after.because == "queue wait p95 0.10 s; KV wanted 10 %; fewer would have done for 5 min → 1 replica"
    )


def test_replicas_that_came_meanwhile_are_not_advised_away_at_once() -> None:
    """What was advised before they came is no advice for them: first one was there, then four."""
    scaling = Scaling(1, 16)
    scaling.recommend(calm(0, ready=1))
    assert scaling.recommend(calm(4)).replicas == 4


def test_the_bounds_hold() -> None:
    assert played(lambda _: 90.0, 100, most=8)[-1].replicas == 8


def test_what_is_unknown_is_not_zero() -> None:
    scaling = Scaling(1, 8)
    nothing = scaling.recommend(Demand(0.0, 0, 2, None, 0, 0, 0, None))
    assert (nothing.replicas, nothing.kv_pressure) == (2, None)


def test_its_reason_is_rounded_as_an_operator_reads_it() -> None:
    made = played(lambda _: 1.0, 60, wait_at=lambda _: 0.0063)
    assert made[-1].because.startswith("queue wait p95 under 0.01 s; ")
    assert "->" not in made[-1].because
    words = [seconds_words(each) for each in (0.0, 0.0063, 0.014, 1.27, 12.3)]
    assert words == ["0 s", "under 0.01 s", "0.01 s", "1.3 s", "12 s"]


def test_a_forecasts_p95_is_told_with_as_many_digits_as_its_p50() -> None:
    minute = Minute(tenant=None, horizon_s=60.0, block_size=16, scale=1.0)
    for wait_s in (0.012, 0.012, 0.03):
        job = Job(
            tenant="acme",
            tier="batch",
            arrival_s=1.0,
            known_tokens=10,
            prefill_tokens=0,
            output_tokens=10,
            running=True,
            admitted_s=1.0 + wait_s,
        )
        minute.jobs.append(job)
    lines, _ = of_tier(minute, "batch")
    assert lines == ["queue wait of batch in that minute: p50 0.01 s, p95 up to about 0.03 s"]
