"""What a large fleet costs those who watch it: counted, not timed."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from infer_engine.control.deltas import Deltas
from infer_engine.control.frames import STATUS_ONLY
from infer_engine.control.operations import Operations
from infer_engine.control.watch_query import Query
from infer_engine.fleet.board import PER_S, SMALL_FLEET, period_s
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.views import Views
from infer_engine.protocol import Delta, Drain, FleetDelta, ReplicaFrame, Status
from infer_engine.replica.handle import ReplicaHandle
from support.simulated_fleet import SimulatedBench, run, spec

LARGE = SMALL_FLEET + 16
SECONDS, HZ = 2, 4


class Server:
    """What watchers read of a server."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.operations = Operations(fleet.feed.wall, lambda _: None)
        self.server_version = "test"
        self.capabilities: list[str] = []
        self.sequence: Iterator[int] = itertools.count(1)

    def watched(self) -> Status:
        return self.fleet.board.status()


class Counts:
    """How often a replica's status is worked out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of = Counter[str]()
        real = Views._replica  # pyright: ignore[reportPrivateUsage]

        def counted(views: Views, handle: ReplicaHandle, *rest: Any) -> Any:
            self.of[handle.id] += 1
            return real(views, handle, *rest)

        monkeypatch.setattr(Views, "_replica", counted)


def watchers(server: Server, count: int) -> list[Deltas]:
    clock = asyncio.get_running_loop().time
    made = [Deltas(server, Query(detail=STATUS_ONLY, hz=HZ), clock) for _ in range(count)]
    for each in made:
        each.open()
    return made


async def play(bench: SimulatedBench, count: int, counts: Counts) -> list[list[Delta]]:
    """What each of ``count`` watchers is told in SECONDS of a fleet, some of which is busy, the snapshots
    left out and not counted."""
    for number in range(4):
        bench.fleet.submit(spec(16, 4_000, first=100 * number))
    busy = {row.replica for row in bench.fleet.rows()}
    made = watchers(Server(bench.fleet), count)
    told: list[list[Delta]] = [[] for _ in made]
    with ExitStack() as observed:
        for each in made:
            observed.enter_context(each.observing())
        await asyncio.sleep(1)
        for each in made:
            each.snapshot()
        counts.of.clear()
        for _ in range(SECONDS * HZ):
            await asyncio.sleep(1 / HZ)
            for each, deltas in zip(made, told, strict=True):
                deltas += each.changes()
        for each in made:
            each.close()
    for deltas in told:
        assert {delta.replica for delta in deltas if isinstance(delta, ReplicaFrame)} >= busy
        assert any(isinstance(delta, FleetDelta) for delta in deltas)
    return told


def test_a_second_watcher_of_a_large_fleet_has_nothing_worked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counts(monkeypatch)
    made: dict[int, int] = {}
    for count in (1, 4):

        async def drill(bench: SimulatedBench, count: int = count) -> None:
            told = await play(bench, count, counts)
            assert len({len(deltas) for deltas in told}) == 1
            made[count] = counts.of.total()

        run(drill, tmp_path, replicas=LARGE)
    assert made[4] == made[1]
    # Not once for each of four looks a second.
    most = SECONDS / period_s(LARGE) + 1
    assert made[1] <= LARGE * most < LARGE * SECONDS * HZ


def test_of_a_large_fleet_a_part_is_worked_out_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counts(monkeypatch)

    async def drill(bench: SimulatedBench) -> None:
        (watcher,) = watchers(Server(bench.fleet), 1)
        await asyncio.sleep(1)
        watcher.snapshot()
        for _ in range(2):
            counts.of.clear()
            watcher.changes()
            assert not counts.of, "nothing is due at the same moment"
            await asyncio.sleep(period_s(LARGE) / 4)
            watcher.changes()
            assert 0 < counts.of.total() < LARGE / 2
        watcher.close()

    run(drill, tmp_path, replicas=LARGE)


def test_what_an_operator_does_shows_at_once_in_a_large_fleet(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        (watcher,) = watchers(Server(bench.fleet), 1)
        await asyncio.sleep(1)
        watcher.snapshot()
        bench.fleet.draining.drain("r7", Drain())
        frames = [delta for delta in watcher.changes() if isinstance(delta, ReplicaFrame)]
        assert [(frame.replica, frame.status and frame.status.state) for frame in frames] == [
            ("r7", "draining")
        ] or [frame.status and frame.status.state for frame in frames] == ["drained"]
        watcher.close()

    run(drill, tmp_path, replicas=LARGE)


def test_the_state_of_a_small_fleet_is_never_old(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        await asyncio.sleep(1)
        board = bench.fleet.board
        assert board.frame("r0") is not board.frame("r0")
        assert board.status() is not board.status()

    run(drill, tmp_path, replicas=3)


@pytest.mark.parametrize(("replicas", "seconds"), [(1, 0.0), (SMALL_FLEET, 0.0), (100, 0.5), (1_000, 2.0)])
def test_how_old_a_status_may_be(replicas: int, seconds: float) -> None:
    assert period_s(replicas) == seconds
    assert not seconds or replicas / seconds <= PER_S


def test_the_end_of_a_batch_looks_at_those_who_spoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are."""
    flushed = Counter[str]()
    real = ReplicaHandle.flush

    def counted(handle: ReplicaHandle) -> bool:
        flushed[handle.id] += 1
        return real(handle)

    async def drill(bench: SimulatedBench) -> None:
        await asyncio.sleep(1)
        monkeypatch.setattr(ReplicaHandle, "flush", counted)
        generation = bench.fleet.submit(spec(16, 20))
        await bench.finished(generation)
        monkeypatch.setattr(ReplicaHandle, "flush", real)
        assert flushed[generation.replica or ""] >= 5
        # Of the others each is looked at by the tick and when it says that it lives, not after each step.
        assert flushed.total() - flushed[generation.replica or ""] <= 2 * LARGE

    run(drill, tmp_path, replicas=LARGE)
