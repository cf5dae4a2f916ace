"""Headroom changes who is admitted, for the stated reason, in the next frame, and never evicts anybody."""

from infer_engine.protocol import Operation
from support.asking import asked, command, ended, refused
from support.server import EngineServer
from support.watching import Mirror, watching


def waiting_reasons(mirror: Mirror) -> list[str | None]:
    return [row.waiting_reason for row in mirror.replicas["r0"].in_state("waiting")]


def running(mirror: Mirror) -> int:
    return len(mirror.replicas["r0"].in_state("running"))


def revert_of(mirror: Mirror) -> Operation:
    return next(each for each in reversed(mirror.operations.values()) if each.kind == "headroom-revert")


def admit_limit(mirror: Mirror) -> int | None:
    status = mirror.replicas["r0"].status
    return status.kv.admit_limit if status is not None else None


async def test_headroom_and_memory_are_told_apart(server: EngineServer) -> None:
    await command(server, "/headroom", replica="r0", percent=0)
    try:
        async with watching(server) as watch, asked(server, 1_700, 300):
            await watch.until(lambda mirror: running(mirror) == 1)
            before = len(watch.mirror.events)
            first = watch.mirror.replicas["r0"].in_state("running")[0].id
            # A prompt of more blocks than are free, though no more than the mark allows.
            async with asked(server, 10, 1_900):
                await watch.until(lambda mirror: waiting_reasons(mirror) == ["kv"])
                row = watch.mirror.replicas["r0"].in_state("waiting")[0]
                assert row.needs_blocks is not None
                assert row.admissible_blocks is not None
                assert row.needs_blocks > row.admissible_blocks
            await watch.until(lambda mirror: waiting_reasons(mirror) == [])

            moved = await command(server, "/headroom", replica="r0", percent=95, actor="ann", reason="spike")
            assert moved.operation is not None
            assert moved.operation.phase == "succeeded"
            assert moved.operation.params["limits"] == {"r0": [128, 6]}
            async with asked(server, 10) as small:
                await watch.until(lambda mirror: waiting_reasons(mirror) == ["headroom"])
                assert admit_limit(watch.mirror) == 6
                assert watch.mirror.replicas["r0"].in_state("running")[0].id == first
                await command(server, "/headroom", replica="r0", percent=0)
                await watch.until(lambda mirror: admit_limit(mirror) == 128 and waiting_reasons(mirror) == [])
                assert (await small).status_code == 200
            await watch.until(lambda mirror: running(mirror) == 1)
            still = watch.mirror.replicas["r0"].in_state("running")
            assert [row.id for row in still] == [first]
            assert still[0].preemptions == 0
            assert not [
                event for event in watch.mirror.events[before:] if event.kind in ("preempt", "cache_evict")
            ]
    finally:
        await command(server, "/headroom", replica="r0", percent=10)


async def test_a_dry_run_changes_nothing(server: EngineServer) -> None:
    before = server.status().replicas[0].kv.admit_limit
    result = await command(server, "/headroom", replica="r0", percent=50, dry_run=True)
    assert result.operation is None
    assert result.effect.numbers["new_limit"] == 64
    assert server.status().replicas[0].kv.admit_limit == before


async def test_the_mark_moves_back_by_itself(server: EngineServer) -> None:
    before = server.status().replicas[0].kv.admit_limit
    async with watching(server) as watch:
        await command(server, "/headroom", replica="r0", blocks=100, revert_after_s=1)
        await watch.until(lambda mirror: admit_limit(mirror) == 28)
        mirror = await watch.until(lambda mirror: admit_limit(mirror) == before)
        await watch.until(lambda mirror: revert_of(mirror).phase == "succeeded")
    revert = revert_of(mirror)
    assert revert.deadline_at is not None
    assert f"28 → {before}" in revert.message


async def test_a_mark_that_was_moved_again_is_not_moved_back(server: EngineServer) -> None:
    first = await command(server, "/headroom", replica="r0", blocks=100, revert_after_s=60)
    assert first.operation is not None
    revert_id = first.operation.params["revert_operation"]
    async with server.async_control() as client:
        revert = (await client.get(f"/control/v1/operations/{revert_id}")).json()
    assert revert["phase"] == "running"
    second = await command(server, "/headroom", replica="r0", percent=10)
    assert (await ended(server, second.operation)).phase == "succeeded"
    async with server.async_control() as client:
        revert = (await client.get(f"/control/v1/operations/{revert_id}")).json()
    assert (revert["phase"], revert["message"]) == ("cancelled", "the mark was moved again")


async def test_the_batch_mark_is_another(server: EngineServer) -> None:
    kv = server.status().replicas[0].kv
    await command(server, "/headroom", replica="r0", percent=50, tier="batch")
    try:
        now = server.status().replicas[0].kv
        assert (now.admit_limit, now.batch_limit) == (kv.admit_limit, 64)
    finally:
        await command(server, "/headroom", replica="r0", percent=35, tier="batch")


async def test_what_cannot_be_is_refused(server: EngineServer) -> None:
    assert (await refused(server, "/headroom", blocks=1_000)).field == "blocks"
    assert (await refused(server, "/headroom", percent=10, replica="r9")).code == "unknown_replica"
