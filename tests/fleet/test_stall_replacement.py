"""A replica that makes no progress is ended and started again; one that is only looked at late is not."""

import asyncio
from pathlib import Path

import pytest
from infer_engine.fleet import lifecycle
from infer_engine.fleet.stalls import Stalls
from support.fleets import Bench, running_fleet, until
from support.simulated_fleet import SimulatedBench, run, spec


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_BACKOFF_S", 0.01)


def test_a_frozen_replica_is_replaced_and_its_requests_go_on_elsewhere(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        bench.replicas.freeze("r0")
        stuck = [bench.fleet.submit(spec(100, 20, first=index * 1_000)) for index in range(4)]
        assert any(each.replica == "r0" for each in stuck)
        await bench.finished(*stuck, within_s=30.0)
        assert {each.finish_reason for each in stuck} == {"length"}
        failed = [event for event in bench.events("replica") if event.reason == "failed"]
        assert [event.replica for event in failed] == ["r0"]
        assert "it stalled: it" in str(failed[0].message)
        await asyncio.sleep(5)
        status = bench.fleet.replica("r0")
        assert (status.state, status.incarnation, status.stalls) == ("ready", 2, 1)

    run(drill, tmp_path, replicas=2)


def test_what_the_only_replica_had_when_it_stalled_waits_for_its_next_life(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        bench.replicas.freeze("r0")
        stuck = [bench.fleet.submit(spec(100, 20, first=index * 1_000)) for index in range(4)]
        await bench.finished(*stuck, within_s=60.0)
        assert {each.finish_reason for each in stuck} == {"length"}
        assert bench.fleet.replica("r0").incarnation == 2

    run(drill, tmp_path, replicas=1)


def test_loading_is_no_stall(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        await asyncio.sleep(30)
        assert [bench.fleet.replica(each).incarnation for each in bench.fleet.replica_ids()] == [1, 1]

    run(drill, tmp_path, replicas=2, load_s=200.0)


class Looking:
    """``Stalls`` over a real fleet, with a real-time clock and a CPU clock of the test's own."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.cpu_s: float | None = None
        self.replaced: list[str] = []
        members, fleet = bench.fleet.members, bench.fleet
        for each in members.lifecycles.values():
            monkeypatch.setattr(each, "cpu_s", lambda: self.cpu_s)
        self.stalls = Stalls(
            members.handles,
            members.lifecycles,
            fleet._ledger,  # pyright: ignore[reportPrivateUsage]
            0.5,
            lambda: self.now_s,
            self.replaced.append,
        )

    def look(self, after_s: float = 0.5) -> list[str]:
        self.now_s += after_s
        self.stalls.look()
        return self.replaced


async def test_a_stall_is_believed_at_the_second_look_and_not_after_a_late_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        bench.submit(4, 4)
        await until(lambda: bench.launcher.now("r0").runner.waiting_for_permission)
        looking = Looking(bench, monkeypatch)
        assert looking.look() == []
        bench.ahead_s += 30
        assert looking.look() == [], "seen once"
        assert looking.look(after_s=60.0) == [], "the server itself was held up"
        assert looking.look() == []
        assert looking.look() == ["r0"]
        assert bench.fleet.replica("r0").error == next(
            event.message for event in bench.events("replica") if event.reason == "failed"
        )


async def test_one_that_computes_is_slow_and_gets_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        bench.submit(4, 4)
        await until(lambda: bench.launcher.now("r0").runner.waiting_for_permission)
        looking = Looking(bench, monkeypatch)
        bench.ahead_s += 10
        for tick in range(5):
            looking.cpu_s = float(tick)
            assert looking.look() == []
        assert looking.look() == ["r0"], "it stopped computing"


async def test_even_one_that_computes_is_replaced_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        bench.submit(4, 4)
        await until(lambda: bench.launcher.now("r0").runner.waiting_for_permission)
        looking = Looking(bench, monkeypatch)
        bench.ahead_s += 31
        looking.cpu_s = 1.0
        assert looking.look() == []
        looking.cpu_s = 2.0
        assert looking.look() == ["r0"]


async def test_a_replica_on_a_bad_gpu_is_not_started_again_by_itself() -> None:
    async with running_fleet(replicas=2) as bench:
        bench.fleet.members.handles["r0"].bad = "uncorrectable ECC errors"
        assert bench.fleet.replica("r0").health == "bad"
        bench.launcher.now("r0").kill()
        await until(lambda: bench.fleet.replica("r0").state == "fenced")
        assert "its GPU is bad (uncorrectable ECC errors)" in str(bench.fleet.replica("r0").error)
        assert len(bench.launcher.lives["r0"]) == 1
        bench.fleet.fencing.release("r0")
        await until(lambda: bench.fleet.replica("r0").state == "ready")
        assert bench.fleet.replica("r0").health == "idle"
