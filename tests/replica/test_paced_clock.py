"""A clock that goes faster than the real one, and slow rather than wrong where the machine is too slow."""

import asyncio
from dataclasses import dataclass

import pytest
from infer_engine.replica.virtual_clock import MOST_BEHIND_S, PacedClock
from support.fleets import until


@dataclass
class Real:
    now_s: float = 50.0

    def __call__(self) -> float:
        return self.now_s


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_it_goes_as_fast_as_asked_and_calls_at_the_exact_moment() -> None:
    real = Real()
    clock = PacedClock(10.0, real)
    clock.start()
    seen: list[tuple[str, float]] = []
    clock.call_at(0.25, lambda: seen.append(("second", clock.now())))
    clock.call_at(0.1, lambda: seen.append(("first", clock.now())))
    await settle()
    assert seen == []
    real.now_s += 0.5  # five simulated seconds: both are long due
    clock.call_at(0.3, lambda: seen.append(("third", clock.now())))
    await until(lambda: len(seen) == 3)
    assert seen == [("first", 0.1), ("second", 0.25), ("third", 0.3)]
    assert clock.now() == pytest.approx(5.0)
    await clock.stop()


async def test_it_never_passes_what_is_due() -> None:
    real = Real()
    clock = PacedClock(10.0, real)
    clock.call_at(1.0, lambda: None)
    real.now_s += 60.0
    assert clock.now() == 1.0
    clock.start()
    await settle()
    real.now_s += 0.1
    assert clock.now() == pytest.approx(2.0)
    # What one does at once happens at one moment.
    real.now_s += 0.1
    assert clock.now() == pytest.approx(2.0)
    await settle()
    assert clock.now() == pytest.approx(3.0)
    await clock.stop()


async def test_what_is_asked_for_in_a_callback_comes_in_its_order() -> None:
    real = Real()
    clock = PacedClock(1.0, real)
    seen: list[float] = []

    def chain() -> None:
        seen.append(clock.now())
        if len(seen) < 5:
            clock.call_at(clock.now() + 0.01, chain)

    clock.call_at(0.01, chain)
    real.now_s += 1.0
    clock.start()
    real.now_s += 1.0
    await settle()
    assert seen == pytest.approx([0.01, 0.02, 0.03, 0.04, 0.05])
    await clock.stop()


async def test_a_machine_that_cannot_keep_up_makes_it_slow_and_it_says_so() -> None:
    """Each callback takes 0.2 real seconds where there are 0.1 for it at the speed that was asked for."""
    real = Real()
    clock = PacedClock(2.0, real)
    calls: list[float] = []

    def work() -> None:
        real.now_s += 0.2
        calls.append(clock.now())
        clock.call_at(clock.now() + 0.2, work)

    clock.call_at(0.2, work)
    clock.start()
    real.now_s += 0.1
    await until(lambda: len(calls) >= 60)
    assert clock.achieved_speed == pytest.approx(1.0, rel=0.2)
    assert calls == pytest.approx([0.2 * number for number in range(1, len(calls) + 1)])
    # What it is behind is given up, not run after: with nothing to do it is where it was, a little later.
    behind_s = clock._target_s(real.now_s) - clock.now()  # pyright: ignore[reportPrivateUsage]
    assert behind_s <= MOST_BEHIND_S * clock.speed + 0.2 * clock.speed
    await clock.stop()


async def test_what_fails_takes_nobody_with_it(caplog: pytest.LogCaptureFixture) -> None:
    real = Real()
    clock = PacedClock(1.0, real)
    seen: list[float] = []

    def fail() -> None:
        raise RuntimeError("out of order")

    clock.call_at(0.1, fail)
    cancelled = clock.call_at(0.2, lambda: seen.append(-1.0))
    clock.call_at(0.3, lambda: seen.append(clock.now()))
    cancelled.cancel()
    clock.start()
    real.now_s += 1.0
    await settle()
    assert seen == [0.3]
    assert "out of order" in caplog.text
    await clock.stop()
