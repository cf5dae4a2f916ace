"""A replica that has stalled gets no new requests while another steps, and what cannot happen is said."""

import time

from infer_engine.control.drains import Drains
from infer_engine.control.operations import Operations
from infer_engine.fleet.health import STALL_S
from infer_engine.protocol import Drain
from support.fleets import Bench, running_fleet, until


async def stall(bench: Bench, replica: str, others: list[str]) -> None:
    """``replica`` has a request and does not step; the others go on and say so."""
    await until(lambda: bench.launcher.now(replica).runner.waiting_for_permission)
    bench.ahead_s += STALL_S + 1
    heard = {each: bench.fleet._handles[each].heard_s or 0.0 for each in others}  # pyright: ignore[reportPrivateUsage]
    await until(
        lambda: all(
            (bench.fleet._handles[each].heard_s or 0.0) > heard[each] + STALL_S  # pyright: ignore[reportPrivateUsage]
            for each in others
        )
    )
    assert bench.fleet.replica(replica).health == "stalled"


async def test_new_requests_go_to_those_that_step() -> None:
    async with running_fleet(replicas=2, held=True) as bench:
        first = bench.submit(4, 4)
        assert first.replica is not None
        other = "r1" if first.replica == "r0" else "r0"
        bench.launcher.now(other).runner.release()
        await stall(bench, first.replica, [other])
        later = [bench.submit(4, 4) for _ in range(6)]
        assert {each.replica for each in later} == {other}
        warnings = bench.fleet.draining.predict(first.replica, Drain(mode="cancel")).warnings
        assert any("is stalled: nothing is cancelled" in warning for warning in warnings)

        operations = Operations(time.time, lambda _: None)
        drains = Drains(bench.fleet, operations, time.time)
        operation = drains.drain(first.replica, Drain(mode="cancel")).operation
        assert operation is not None
        await until(lambda: operations.get(operation.id).blocked_by)
        assert operations.get(operation.id).blocked_by[0] == f"{first.replica} is stalled: it does not answer"
        await operations.close()


async def test_when_all_have_stalled_one_gets_it_all_the_same() -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        bench.submit(4, 4)
        await stall(bench, "r0", [])
        assert bench.submit(4, 4).replica == "r0"


async def test_undrain_says_that_those_who_wait_elsewhere_stay() -> None:
    async with running_fleet(replicas=2, max_running=1, held=True) as bench:
        bench.fleet.draining.drain("r0", Drain())
        for _ in range(3):
            bench.submit(4, 4)
        effect = bench.fleet.draining.predict_undrain("r0")
        assert effect.summary == [
            "r0 takes requests again",
            "3 requests that wait on other replicas stay there",
        ]
