"""What is shown: frames from one observation, figures that include those who wait, headroom and who it keeps
out."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import ReplicaFrame, SetHeadroom
from support.fleets import Bench, finished, running_fleet, until


def check_frame(frame: ReplicaFrame, total: int) -> None:
    assert frame.status is not None
    assert frame.rows is not None
    assert frame.blocks is not None
    assert sum(run.count for run in frame.blocks) == total
    owned = Counter[str]()
    for run in frame.blocks:
        for owner in run.owners:
            owned[owner] += run.count
    kv = frame.status.kv
    assert kv.used == sum(owned.values()) == total - (kv.free or 0)
    running = {row.id: row.kv_blocks for row in frame.rows if row.state == "running"}
    assert owned == Counter(running)
    assert frame.order == [row.id for row in frame.rows]
    assert frame.status.running == len(running)
    assert frame.status.waiting == len(frame.rows) - len(running)
    assert all(row.replica == frame.replica for row in frame.rows)


async def test_every_frame_adds_up_while_requests_come_and_go() -> None:
    async with running_fleet(replicas=2, kv_blocks=12, max_running=4) as bench:
        observer = bench.fleet.observe(None, 20, blocks=True)
        await until(lambda: bench.fleet.frame("r0").blocks and bench.fleet.frame("r1").blocks)
        for replica in ("r0", "r1"):
            bench.launcher.now(replica).runner.pace_s = 0.001
        generations = [bench.submit(3 + n % 7, 5 + n % 30) for n in range(60)]
        seen: set[tuple[str, int]] = set()
        while not all(each.finished for each in generations):
            for replica in ("r0", "r1"):
                frame = bench.fleet.frame(replica)
                check_frame(frame, total=12)
                seen.add((replica, frame.step))
            await bench_turn(bench)
        assert len(seen) > 2
        await until(lambda: all(bench.fleet.frame(each).rows == [] for each in ("r0", "r1")))
        check_frame(bench.fleet.frame("r0"), total=12)
        observer.close()
        observer.close()
        await until(lambda: bench.fleet.frame("r0").blocks is None, "unobserved views carry no blocks")


async def bench_turn(bench: Bench) -> None:
    """Until anything more has happened."""
    count = len(bench.feed)
    await until(lambda: len(bench.feed) > count or not bench.fleet.rows())


async def test_what_is_unknown_is_none_and_not_zero() -> None:
    async with running_fleet(replicas=1, loaded=False) as bench:
        replica = bench.fleet.replica("r0")
        assert (replica.state, replica.health, replica.running, replica.waiting) == (
            "starting",
            None,
            None,
            None,
        )
        assert (replica.kv.used, replica.kv.total, replica.tokens_per_s, replica.ttft_s.p50) == (None,) * 4
        totals = bench.fleet.status().totals
        assert (totals.kv_used_ratio, totals.tokens_per_s, totals.queue_wait_s.oldest) == (None, None, None)
        assert bench.fleet.frame("r0").rows == []


async def test_figures_include_those_who_still_wait() -> None:
    async with running_fleet(replicas=1, max_running=1, held=True) as bench:
        first, second = bench.submit(4, 3), bench.submit(4, 3)
        bench.launcher.now("r0").runner.allow(1)
        await until(lambda: first.emitted)
        bench.ahead_s += 40
        replica = bench.fleet.replica("r0")
        assert replica.ttft_s.p99 == pytest.approx(40, rel=0.05)
        assert replica.ttft_s.p50 is not None
        assert replica.ttft_s.p50 < 1
        assert replica.queue_wait_s.p99 == pytest.approx(40, rel=0.05)
        assert replica.queue_wait_s.oldest == pytest.approx(40, rel=0.05)
        row = bench.fleet.row(second.id)
        assert row is not None
        assert (row.state, row.ttft_s) == ("waiting", None)
        assert row.queue_wait_s == pytest.approx(40, rel=0.05)
        bench.launcher.now("r0").runner.release()
        await finished(first, second)
        bench.ahead_s += 100
        empty = bench.fleet.replica("r0")
        assert (empty.ttft_s.p50, empty.itl_s.p50, empty.queue_wait_s.p50, empty.tokens_per_s) == (
            None,
            None,
            None,
            0,
        )


async def test_test_traffic_stands_aside_as_soon_as_a_user_comes() -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        synthetic = bench.submit(4, 2, synthetic=True)
        bench.ahead_s += 20
        runner = bench.launcher.now("r0").runner
        runner.release()
        await finished(synthetic)
        assert bench.fleet.replica("r0").ttft_s.p50 == pytest.approx(20, rel=0.05)
        real = bench.submit(4, 2)
        await finished(real)
        assert (bench.fleet.replica("r0").ttft_s.p99 or 100) < 5
        samples = bench.fleet.measures.of["r0"]
        assert (samples.generated_tokens, samples.finished["length"]) == (4, 2)


async def test_headroom_keeps_out_whom_memory_would_take() -> None:
    """Each request takes 3 of 16 blocks for all its life. Waiting is for headroom while the mark is in the
    way, and for kv when the pool itself is."""
    async with running_fleet(
        replicas=1, kv_blocks=16, block_size=16, max_running=8, token_budget=512, held=True
    ) as bench:
        fleet, runner = bench.fleet, bench.launcher.now("r0").runner
        assert await fleet.limits.set_headroom(SetHeadroom(replica="r0", blocks=9)) == {"r0": (16, 7)}
        assert fleet.replica("r0").kv.admit_limit == 7
        generations = [bench.submit(33, 15) for _ in range(9)]
        await bench.heard("r0", 9)
        fleet.observe("r0", 20, blocks=True)
        await until_seen(bench)
        last = bench.steps("r0")[-1]
        assert (last.running, last.waiting, last.kv_used) == (2, 7, 6)
        assert reasons(bench) == ["headroom"] * 7

        effect = fleet.limits.predict_headroom(SetHeadroom(percent=0))
        assert (effect.numbers["old_limit"], effect.numbers["new_limit"]) == (7, 16)
        assert effect.numbers["admitted_now"] == 3
        assert await moved(bench, SetHeadroom(percent=0)) == {"r0": (7, 16)}
        fleet.observe("r0", 20, blocks=True)
        await until_seen(bench)
        last = bench.steps("r0")[-1]
        assert (last.running, last.waiting, last.kv_used) == (5, 4, 15)
        assert reasons(bench) == ["kv"] * 4

        assert await moved(bench, SetHeadroom(blocks=15)) == {"r0": (16, 1)}
        frame = fleet.frame("r0")
        assert frame.status is not None
        assert (frame.status.kv.admit_limit, frame.status.running) == (1, 5), (
            "the next view has it; nobody left"
        )
        runner.release()
        await finished(*generations)
        assert {each.finish_reason for each in generations} == {"length"}
        assert not bench.events("preempt"), "moving the mark evicts nobody"


async def moved(bench: Bench, command: SetHeadroom) -> dict[str, tuple[int, int]]:
    """Set the headroom and let held steps run until the replica has heard of it and observed."""
    answer = asyncio.ensure_future(bench.fleet.limits.set_headroom(command))
    while not answer.done():
        await bench.one_step("r0")
    return answer.result()


async def until_seen(bench: Bench) -> None:
    """Let held steps run until the newest view is as of a step that came after now: few of them, for who is
    looked at does not run for long."""
    step = bench.steps("r0")[-1].step

    def has_come() -> bool:
        return bench.fleet.frame("r0").step > step

    while not has_come():
        await bench.one_step("r0")
        with suppress(AssertionError):
            await until(has_come, within_s=0.5)


def reasons(bench: Bench) -> list[str | None]:
    return [row.waiting_reason for row in bench.fleet.frame("r0").rows or [] if row.state == "waiting"]


async def test_a_mark_that_an_operator_moved_survives_a_restart() -> None:
    async with running_fleet(replicas=2) as bench:
        moved = await bench.fleet.limits.set_headroom(SetHeadroom(percent=50, tier="batch"))
        assert moved == {"r0": (16, 8), "r1": (16, 8)}
        bench.launcher.now("r0").kill()
        await until(lambda: bench.fleet.replica("r0").incarnation == 2)
        await bench.ready()
        await until(lambda: bench.fleet.replica("r0").kv.batch_limit == 8)
        assert bench.fleet.replica("r0").kv.admit_limit == 16


@pytest.mark.parametrize(
    ("command", "status", "field"),
    [
        (SetHeadroom(), 422, "percent"),
        (SetHeadroom(percent=10, blocks=1), 422, "percent"),
        (SetHeadroom(percent=101), 422, "percent"),
        (SetHeadroom(percent=float("nan")), 422, "percent"),
        (SetHeadroom(blocks=17), 422, "blocks"),
        (SetHeadroom(blocks=-1), 422, "blocks"),
        (SetHeadroom(blocks=1, replica="r7"), 404, "replica"),
    ],
)
async def test_headroom_that_does_not_fit_is_refused_by_field(
    command: SetHeadroom, status: int, field: str
) -> None:
    async with running_fleet(replicas=1) as bench:
        with pytest.raises(Refusal) as predicted:
            bench.fleet.limits.predict_headroom(command)
        with pytest.raises(Refusal) as refused:
            await bench.fleet.limits.set_headroom(command)
        assert refused.value.problem == predicted.value.problem
        assert (refused.value.problem.status, refused.value.problem.field) == (status, field)
        assert bench.fleet.replica("r0").kv.admit_limit == 16


async def test_finished_rows_are_kept_and_bounded() -> None:
    async with running_fleet(replicas=1, kv_blocks=64, max_running=32) as bench:
        generations = [bench.submit(1, 1) for _ in range(100)]
        await finished(*generations)
        rows = bench.fleet.rows(state="finished")
        assert len(rows) == 100
        assert {row.id for row in rows} == {each.id for each in generations}
        assert bench.fleet.rows() == []
        assert bench.fleet.rows("r0", "finished") == rows
