"""No more requests of a tenant in any minute than its limit."""

from random import Random

import pytest
from infer_engine.fleet.tenant_rate import PERIOD_S, TenantRate


def test_so_many_in_a_minute_and_then_the_seconds_until_the_next() -> None:
    rate = TenantRate()
    assert [rate.take("a", 2, now_s) for now_s in (0.0, 10.0)] == [None, None]
    assert rate.take("a", 2, 30.0) == pytest.approx(30.0)
    assert rate.take("b", 2, 30.0) is None
    assert rate.take("a", 2, 60.0) is None
    assert rate.take("a", 2, 60.0) == pytest.approx(10.0)


def test_the_told_seconds_are_enough_and_not_too_many() -> None:
    rate, draw, now_s = TenantRate(), Random(3), 0.0
    taken: list[float] = []
    for _ in range(2000):
        now_s += draw.choice([0.0, 0.1, 3.0])
        limit = draw.choice([3, 5])
        wait_s = rate.take("a", limit, now_s)
        recent = sum(moment > now_s - PERIOD_S for moment in taken)
        assert (wait_s is None) == (recent < limit)
        if wait_s is None:
            taken.append(now_s)
            continue
        at_s = now_s + wait_s
        assert wait_s > 0
        assert sum(moment > at_s - PERIOD_S + 1e-9 for moment in taken) < limit
        assert sum(moment > at_s - PERIOD_S - 1e-9 for moment in taken) >= limit


def test_a_limit_set_later_counts_what_was_taken_without() -> None:
    rate = TenantRate()
    for _ in range(3):
        assert rate.take("a", None, 0.0) is None
    assert rate.take("a", 3, 1.0) is not None


def test_what_was_refused_for_another_reason_does_not_count() -> None:
    rate = TenantRate()
    assert rate.take("a", 1, 0.0) is None
    rate.give_back("a")
    rate.give_back("nobody")
    assert rate.take("a", 1, 0.0) is None


def test_a_clock_that_goes_back_takes_no_more_than_the_limit() -> None:
    rate = TenantRate()
    assert rate.take("a", 2, 100.0) is None
    assert rate.take("a", 2, 50.0) is None
    assert rate.take("a", 2, 120.0) is not None
    assert rate.take("a", 2, 161.0) is None


def test_only_so_many_tenants_are_remembered() -> None:
    rate = TenantRate(most_tenants=10)
    for index in range(100):
        rate.take(f"t{index}", 1, 0.0)
    assert len(rate) == 10
    assert rate.take("t99", 1, 1.0) is not None
    rate.forget_idle(59.0)
    assert len(rate) == 10
    rate.forget_idle(60.0)
    assert len(rate) == 0


def test_the_count_is_of_the_last_minute() -> None:
    rate = TenantRate()
    assert [rate.take("a", None, second) for second in (0.0, 30.0, 61.0)] == [None] * 3
    assert (rate.count("a", 61.0), rate.count("b", 61.0), rate.tenants) == (2, 0, ["a"])
