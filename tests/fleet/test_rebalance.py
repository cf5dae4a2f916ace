"""Requests that wait beside room elsewhere: who moves, who does not, and that nothing goes back and forth."""

from dataclasses import replace
from pathlib import Path

from infer_engine.fleet.pacing import Leaver, Room
from infer_engine.fleet.rebalance import MOST_AT_ONCE, SETTLE_S, Rebalance, Waiting, rebalance
from infer_engine.fleet.router import Load
from infer_engine.protocol import Preempt
from infer_engine.replica.messages import Release
from support.simulated_fleet import SimulatedBench, run, spec


def load(replica: str, running: int = 0, waiting: int = 0, queued: int = 0) -> Load:
    return Load(
        replica=replica,
        running=running,
        waiting=waiting,
        slots=4,
        queued_prefill_tokens=queued,
        token_budget=100,
        kv_used_blocks=running * 10,
        kv_promised_blocks=0,
        kv_total_blocks=100,
        most_waiting=100,
    )


def room(replica: str, running: int = 0, queued: int = 0) -> Room:
    return Room(
        replica=replica,
        prefill_tokens=queued,
        token_budget=100,
        free_slots=4 - running,
        taken_blocks=running * 10,
        admit_limit=90,
        batch_limit=65,
        total_blocks=100,
    )


def waiting(number: int = 0, tokens: int = 50, settled_s: float = 10.0) -> Waiting:
    return Waiting(
        source="r0",
        leaver=Leaver(id=f"q{number}", tier="interactive", arrived_s=float(number), tokens=tokens, blocks=5),
        settled_s=settled_s,
    )


#: r0 has all slots taken, r1 is idle.
LOADS = {"r0": load("r0", running=4, waiting=3), "r1": load("r1")}
ROOMS = [room("r0", running=4), room("r1")]


def told(moves: list[Rebalance]) -> list[tuple[str, str]]:
    return [(each.waiting.leaver.id, each.to) for each in moves]


def test_the_oldest_go_to_where_nobody_waits_as_far_as_there_is_room() -> None:
    queue = [waiting(number) for number in (2, 0, 1)]
    assert told(rebalance(queue, LOADS, ROOMS)) == [("q0", "r1"), ("q1", "r1"), ("q2", "r1")]
    assert told(rebalance(queue, LOADS, [ROOMS[0], room("r1", running=3)])) == [("q0", "r1")]
    assert rebalance(queue, LOADS, [room("r0", running=4), room("r1", running=4)]) == []
    crowd = [waiting(number, tokens=1) for number in range(9)]
    wide = replace(room("r1"), free_slots=9)
    assert len(rebalance(crowd, LOADS, [wide])) == MOST_AT_ONCE


def test_interactive_requests_go_before_batch_below_their_mark() -> None:
    batch = replace(waiting(0), leaver=replace(waiting(0).leaver, tier="batch"))
    one_place = [room("r1", running=3)]
    assert told(rebalance([batch, waiting(1)], LOADS, one_place)) == [("q1", "r1")]
    above_its_mark = [replace(room("r1", running=2), batch_limit=20)]
    assert rebalance([batch], LOADS, above_its_mark) == []


def test_a_queue_is_no_place_to_go_to() -> None:
    loads = {**LOADS, "r1": load("r1", running=1, waiting=1)}
    assert rebalance([waiting()], loads, ROOMS) == []
    assert rebalance([waiting()], {"r0": LOADS["r0"]}, ROOMS) == [], "it does not step"


def test_who_came_just_now_stays_and_who_was_moved_stays_longer() -> None:
    assert rebalance([waiting(settled_s=SETTLE_S - 0.1)], LOADS, ROOMS) == []
    once = replace(waiting(settled_s=SETTLE_S), moved=1)
    assert rebalance([once], LOADS, ROOMS) == []
    assert told(rebalance([replace(once, settled_s=2 * SETTLE_S)], LOADS, ROOMS)) == [("q0", "r1")]


def test_what_is_cached_is_given_up_only_for_more_than_it_saves() -> None:
    long = waiting(tokens=390)
    assert told(rebalance([long], LOADS, ROOMS)) == [("q0", "r1")]
    cached = replace(long, held_tokens={"r0": 380})
    [move] = rebalance([cached], LOADS, ROOMS)
    assert move.sooner_steps > 0
    # The source is short of a slot by one place only: what the move saves is less than the cache does.
    nearly = {"r0": load("r0", running=3, waiting=1), "r1": load("r1")}
    assert rebalance([cached], nearly, ROOMS) == []
    both = replace(long, held_tokens={"r0": 380, "r1": 380})
    assert rebalance([both], nearly, ROOMS) == [], "it would be admitted where it is about as soon"


def test_a_fleet_moves_its_queue_to_a_replica_that_came_free_and_then_leaves_it_alone(tmp_path: Path) -> None:
    """Two replicas with one slot: the second of them loses its long request."""

    async def drill(bench: SimulatedBench) -> None:
        fleet = bench.fleet
        long = [fleet.submit(spec(64, 4_000, first=100 * number)) for number in range(2)]
        queue = [fleet.submit(spec(64, 8, first=1_000 + 100 * number)) for number in range(4)]
        on = {each.replica for each in queue}
        assert on == {"r0", "r1"}
        fleet.cancel(long[1].id)
        await bench.finished(*queue)
        assert not long[0].finished, "they did not wait for it"
        assert [len(each.emitted) for each in queue] == [8] * 4
        moved = [each for each in queue if each.moves]
        assert {each.replica for each in queue} == {long[1].replica}
        assert [each.moves for each in moved] == [1, 1], "nothing goes back and forth"
        moves = bench.events("move")
        assert [(each.reason, each.to_replica) for each in moves] == [("rebalanced", long[1].replica)] * 2
        assert all("steps sooner" in (each.message or "") for each in moves)

    run(drill, tmp_path, replicas=2, max_running=1, rebalance=True)


def test_without_it_a_queue_stays_where_it_is(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        fleet = bench.fleet
        long = [fleet.submit(spec(64, 600, first=100 * number)) for number in range(2)]
        queue = [fleet.submit(spec(64, 8, first=1_000 + 100 * number)) for number in range(4)]
        fleet.cancel(long[1].id)
        await bench.finished(*queue)
        assert long[0].finished
        assert bench.events("move") == []

    run(drill, tmp_path, replicas=2, max_running=1)


def test_one_that_runs_by_the_time_the_replica_hears_of_it_stays(tmp_path: Path) -> None:
    """An operator's move takes what runs; this one does not."""

    async def drill(bench: SimulatedBench) -> None:
        fleet = bench.fleet
        one = fleet.submit(spec(64, 400))
        await one.beyond(3, 60.0)
        source = str(one.replica)
        other = next(each for each in fleet.replica_ids() if each != source)
        request = fleet.placement.ledger.live[one.id]
        request.departs(source, "rebalanced", to=other)
        fleet.members.handles[source].tell(Release(ids=[one.id], only_waiting=True))
        emitted = len(one.emitted)
        await one.beyond(emitted + 2, 60.0)
        assert (one.replica, one.moves, request.departure) == (source, 0, None)
        fleet.preempting.preempt(one.id, Preempt(to=other))
        await bench.finished(one)
        assert (one.replica, one.moves) == (other, 1)

    run(drill, tmp_path, replicas=2)
