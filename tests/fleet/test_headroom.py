"""Moving the marks of replicas that do not answer, or are not there just now."""

import pytest
from infer_engine.fleet import telling
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import SetHeadroom
from support.fleets import Bench, finished, running_fleet, until


def limit(bench: Bench, replica: str) -> int | None:
    return bench.fleet.replica(replica).kv.admit_limit


async def test_a_replica_that_answers_late_moves_late_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telling, "ANSWER_TIMEOUT_S", 0.05)
    async with running_fleet(replicas=1, held=True) as bench:
        running = bench.submit(4, 8)
        await until(lambda: bench.launcher.now("r0").runner.waiting_for_permission)
        with pytest.raises(Refusal) as refused:
            await bench.fleet.limits.set_headroom(SetHeadroom(percent=50, revert_after_s=5))
        problem = refused.value.problem
        assert problem.status == 504
        assert "its mark will move to 8 when it answers" in problem.detail
        assert "nothing will be moved back by itself" in problem.detail
        bench.launcher.now("r0").runner.release()
        await until(lambda: limit(bench, "r0") == 8)
        await finished(running)
        bench.launcher.now("r0").kill()
        await until(lambda: len(bench.launcher.lives["r0"]) == 2)
        await until(lambda: limit(bench, "r0") == 8, "the next life has it too")


async def test_a_replica_that_restarts_gets_the_mark_of_the_fleet() -> None:
    async with running_fleet(replicas=2) as bench:
        bench.launcher.load_gate.clear()
        bench.launcher.now("r0").kill()
        await until(lambda: bench.fleet.replica("r0").state == "restarting")
        effect = bench.fleet.limits.predict_headroom(SetHeadroom(percent=50))
        assert "r0 is restarting: it gets the mark once it has loaded" in effect.warnings
        moved = await bench.fleet.limits.set_headroom(SetHeadroom(percent=50))
        assert moved == {"r0": (16, 8), "r1": (16, 8)}
        bench.launcher.load_gate.set()
        await bench.ready()
        await until(lambda: limit(bench, "r0") == 8)


async def test_a_replica_that_never_loaded_is_named() -> None:
    async with running_fleet(replicas=2) as bench:
        bench.fleet._handles["r1"].info = None  # pyright: ignore[reportPrivateUsage]
        effect = bench.fleet.limits.predict_headroom(SetHeadroom(percent=50))
        assert effect.warnings == ["r1 is ready and has never loaded: its mark does not move"]


async def test_percent_is_rounded_as_at_the_start() -> None:
    """10 % of 25 blocks is no whole number: the share of a replica's settings leaves 22 of them."""
    async with running_fleet(replicas=1, kv_blocks=25, admit_limit_ratio=0.9) as bench:
        assert limit(bench, "r0") == 22
        effect = bench.fleet.limits.predict_headroom(SetHeadroom(percent=10))
        assert effect.summary == [
            "r0: headroom is 3 blocks (12%) already: no change",
            "the mark is there already: nothing will change",
        ]
        assert await bench.fleet.limits.set_headroom(SetHeadroom(percent=10)) == {"r0": (22, 22)}


async def test_marks_that_move_against_each_other_are_a_change() -> None:
    async with running_fleet(replicas=2) as bench:
        await bench.fleet.limits.set_headroom(SetHeadroom(replica="r0", blocks=4))
        await bench.fleet.limits.set_headroom(SetHeadroom(replica="r1", blocks=12))
        summary = bench.fleet.limits.predict_headroom(SetHeadroom(blocks=8)).summary
        assert not any("nothing will change" in line for line in summary)
