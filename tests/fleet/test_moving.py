"""Sequences that go on elsewhere in the midst of their output: nothing is lost, nothing comes twice."""

import pytest
from infer_engine.fleet import lifecycle, losses
from infer_engine.fleet.generation import Generation, Refusal
from infer_engine.protocol import Drain, Preempt
from infer_engine.replica.messages import Released, ReleasedOut
from infer_engine.replica.wire import identity
from support.fleets import Bench, finished, lone_token, running_fleet, until


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_BACKOFF_S", 0.01)


def undisturbed(generation: Generation) -> list[int]:
    """What the scripted model says: the token after n known ones is 1000 + n."""
    prompt = len(generation.spec.prompt)
    return [1000 + prompt + number for number in range(generation.spec.max_tokens)]


async def _begin(bench: Bench, count: int, max_tokens: int = 40) -> list[Generation]:
    """Sequences that have emitted on replicas that are held."""
    generations = [bench.submit(4, max_tokens) for _ in range(count)]
    for replica in bench.fleet.replica_ids():
        await bench.step_until(
            replica, lambda replica=replica: all(g.emitted for g in generations if g.replica == replica)
        )
    return generations


def _release(bench: Bench) -> None:
    for replica in bench.fleet.replica_ids():
        bench.launcher.now(replica).runner.release()


async def test_a_drain_moves_what_runs_and_undrain_takes_it_back() -> None:
    async with running_fleet(replicas=2, kv_blocks=64, max_running=8, held=True) as bench:
        fleet = bench.fleet
        generations = await _begin(bench, 6)
        mine = [each for each in generations if each.replica == "r0"]
        effect = fleet.draining.predict("r0", Drain())
        assert effect.numbers["migrated"] == len(mine)
        fleet.draining.drain("r0", Drain(actor="alice"))
        _release(bench)
        await until(lambda: fleet.replica("r0").state == "drained")
        assert fleet.replica("r0").kv.used == 0
        await until(lambda: bench.steps("r0")[-1].kv_used == 0)
        assert all(each.moves == 1 for each in mine if not each.finished)
        await finished(*generations)
        assert all(each.emitted == undisturbed(each) for each in generations)
        assert {event.reason for event in bench.events("move")} == {"draining"}
        fleet.draining.undrain("r0")
        again = [bench.submit(4, 3) for _ in range(2)]
        await finished(*again)
        assert {each.replica for each in again} == {"r0", "r1"}


async def test_without_room_elsewhere_they_stay_and_finish_where_they_are() -> None:
    async with running_fleet(replicas=2, kv_blocks=12, max_running=1, held=True) as bench:
        generations = await _begin(bench, 2, 20)
        effect = bench.fleet.draining.predict("r0", Drain())
        assert (effect.numbers["migrated"], effect.numbers["staying"]) == (0, 1)
        bench.fleet.draining.drain("r0", Drain(mode="migrate"))
        _release(bench)
        await finished(*generations)
        assert all(each.emitted == undisturbed(each) for each in generations)
        await until(lambda: bench.fleet.replica("r0").state == "drained")


async def test_a_move_to_a_named_replica_and_what_is_refused() -> None:
    async with running_fleet(replicas=2, kv_blocks=64, held=True) as bench:
        fleet = bench.fleet
        one, other = await _begin(bench, 2)
        to = str(other.replica)
        for command, code in (
            (Preempt(to="r9"), "unknown_replica"),
            (Preempt(to=str(one.replica)), "already_there"),
        ):
            with pytest.raises(Refusal) as refused:
                fleet.preempting.preempt(one.id, command)
            assert refused.value.problem.code == code
        effect = fleet.preempting.predict(one.id, Preempt(to=to))
        assert effect.numbers["recompute_tokens"] == 4 + len(one.emitted)
        fleet.preempting.preempt(one.id, Preempt(to=to, actor="bob"))
        with pytest.raises(Refusal) as twice:
            fleet.preempting.preempt(one.id, Preempt(to=to))
        assert (twice.value.problem.status, twice.value.problem.code) == (409, "not_running")
        _release(bench)
        await finished(one, other)
        assert (one.emitted, one.replica, one.moves) == (undisturbed(one), to, 1)
        (event,) = bench.events("move")
        assert (event.to_replica, event.reason, event.actor) == (to, "preempted", "bob")
        with pytest.raises(Refusal) as ended:
            fleet.preempting.preempt(one.id, Preempt())
        assert ended.value.problem.code == "not_running"


async def test_a_preempted_request_keeps_its_tokens_and_is_left_alone_for_a_while() -> None:
    async with running_fleet(replicas=1, kv_blocks=64, held=True) as bench:
        (one,) = await _begin(bench, 1)
        bench.fleet.preempting.preempt(one.id, Preempt(actor="carol"))
        await bench.step_until("r0", lambda: one.preemptions)
        (event,) = bench.events("preempt")
        assert (event.reason, event.actor) == ("recompute", "carol")
        await bench.step_until("r0", lambda: bench.events("admit")[-1].message == "resumed")
        with pytest.raises(Refusal) as soon:
            bench.fleet.preempting.preempt(one.id, Preempt())
        assert soon.value.problem.code == "preempted_recently"
        _release(bench)
        await finished(one)
        assert one.emitted == undisturbed(one)


async def test_what_the_former_replica_says_does_not_count() -> None:
    async with running_fleet(replicas=2, kv_blocks=64, held=True) as bench:
        one, other = await _begin(bench, 2)
        source, to = str(one.replica), str(other.replica)
        bench.fleet.preempting.preempt(one.id, Preempt(to=to))
        receive = bench.fleet._receive  # pyright: ignore[reportPrivateUsage]
        receive(
            identity(source, 1),
            Released(incarnation=1, asked=[one.id], released=[ReleasedOut(one.id, 2)]),
        )
        assert one.replica == to
        before = list(one.emitted)
        receive(identity(source, 1), lone_token(1, one.id, len(before)))
        assert one.emitted == before
        assert not one.finished
        _release(bench)
        await finished(one, other)
        assert one.emitted == undisturbed(one)


async def test_cancelled_on_the_way_it_ends_as_cancelled() -> None:
    async with running_fleet(replicas=2, kv_blocks=64, held=True) as bench:
        one, other = await _begin(bench, 2)
        bench.fleet.preempting.preempt(one.id, Preempt(to=str(other.replica)))
        bench.fleet.cancel(one.id)
        _release(bench)
        await finished(one, other)
        assert (one.finish_reason, one.error_code) == ("cancelled", "cancelled_by_operator")


async def test_the_target_dies_too_and_it_goes_on_all_the_same() -> None:
    async with running_fleet(replicas=2, kv_blocks=64, held=True) as bench:
        one, other = await _begin(bench, 2)
        bench.launcher.held = False
        bench.launcher.now(str(one.replica)).kill()
        await until(lambda: one.moves == 1)
        bench.launcher.now(str(other.replica)).kill()
        await finished(one, other)
        assert (one.emitted, other.emitted) == (undisturbed(one), undisturbed(other))
        assert one.moves == 2


async def test_all_down_it_is_held_until_one_is_back_or_its_deadline_passes() -> None:
    async with running_fleet(replicas=1, kv_blocks=64, held=True) as bench:
        (one,) = await _begin(bench, 1)
        bench.launcher.held = False
        bench.launcher.load_gate.clear()
        bench.launcher.now("r0").kill()
        await until(lambda: one.replica is None)
        assert [(row.id, row.waiting_reason) for row in bench.fleet.held_rows()] == [(one.id, "loading")]
        bench.launcher.load_gate.set()
        await finished(one)
        assert one.emitted == undisturbed(one)


async def test_kills_from_outside_are_no_crash_loop_and_end_nobody() -> None:
    async with running_fleet(replicas=1, kv_blocks=64, held=True) as bench:
        one = bench.submit(4, 6)
        for number in range(lifecycle.MOST_CRASHES + 2):
            await until(lambda number=number: bench.fleet.replica("r0").incarnation == number + 1)
            await bench.ready()
            bench.launcher.now("r0").kill()
            await until(lambda number=number: bench.fleet.replica("r0").incarnation == number + 2)
        await bench.ready()
        _release(bench)
        await finished(one)
        assert one.emitted == undisturbed(one)


@pytest.mark.parametrize("known", [True, None])
async def test_a_kill_for_want_of_memory_or_by_nobody_knows_whom_counts(known: bool | None) -> None:
    async with running_fleet(replicas=1) as bench:
        for _ in range(lifecycle.MOST_CRASHES):
            await bench.ready()
            life = bench.launcher.now("r0")
            life.oom = known
            life.kill()
            await until(lambda life=life: bench.launcher.now("r0") is not life or _failed(bench))
        await until(lambda: _failed(bench))
        assert len(bench.launcher.lives["r0"]) == lifecycle.MOST_CRASHES
        why = "ran out of memory" if known else "by whom is not known"
        assert why in str(bench.fleet.replica("r0").error)


def _failed(bench: Bench) -> bool:
    return bench.fleet.replica("r0").state == "failed" and "not started again" in str(
        bench.fleet.replica("r0").error
    )


async def test_what_kills_every_replica_is_ended_before_it_kills_them_all() -> None:
    async with running_fleet(replicas=1, kv_blocks=64, held=True) as bench:
        one = bench.submit(4, 6)
        for number in range(losses.MOST_LOSSES):
            await until(lambda number=number: len(bench.launcher.lives["r0"]) == number + 1)
            await bench.ready()
            life = bench.launcher.now("r0")
            life.runner.error = "illegal memory access"
            life.runner.release()
            await life.wait()
        await finished(one)
        assert (one.finish_reason, one.error_code) == ("error", "replica_lost")


def test_a_request_that_is_complete_is_not_continued() -> None:
    from support.fleets import spec

    one = Generation(id="a", spec=spec(4, 2), arrived_s=0.0)
    assert one.own_end() is None
    one.append(7, 1.0)
    assert one.own_end() is None
    one.append(8, 2.0)
    assert one.own_end() == "length"
