"""Drain: what runs finishes, nothing new enters, what waits goes elsewhere, drained only when nothing is
left."""

import asyncio

from support.asking import asked, command, complete, ended, refused
from support.server import EngineServer
from support.watching import Mirror, watching


def on(mirror: Mirror, replica: str) -> list[str]:
    return list(mirror.replicas[replica].order)


def state(mirror: Mirror, replica: str) -> str | None:
    status = mirror.replicas[replica].status
    return status.state if status is not None else None


def blocked_by(mirror: Mirror, operation: str) -> list[str]:
    return mirror.operations[operation].blocked_by if operation in mirror.operations else []


async def both_busy(server: EngineServer, requests: int, max_tokens: int) -> "list[asyncio.Task[object]]":
    return [asyncio.create_task(complete(server, max_tokens)) for _ in range(requests)]


async def test_drain_and_undrain(pair: EngineServer) -> None:
    async with watching(pair) as watch:
        tasks = await both_busy(pair, 16, 300)
        await watch.until(lambda mirror: all(len(on(mirror, each)) == 8 for each in ("r0", "r1")))
        dry = await command(pair, "/replicas/r0:drain", dry_run=True)
        assert dry.operation is None
        assert (dry.effect.numbers["running"], dry.effect.numbers["moved"]) == (6.0, 2.0)

        result = await command(pair, "/replicas/r0:drain", mode="wait", actor="ann", reason="fan")
        assert result.operation is not None
        assert (result.operation.phase, result.operation.total) in (("running", None), ("running", 8))
        await watch.until(lambda mirror: state(mirror, "r0") == "draining")
        # Nothing new enters, though much is asked for.
        tasks += await both_busy(pair, 4, 20)
        mirror = await watch.until(lambda mirror: state(mirror, "r0") == "drained")
        assert (on(mirror, "r0"), mirror.replicas["r0"].status.kv.used) == ([], 0)
        answers = await asyncio.gather(*tasks)
        assert [answer.status_code for answer in answers] == [200] * 20

        operation = await ended(pair, result.operation)
        assert (operation.phase, operation.blocked_by) == ("succeeded", [])
        assert operation.done == operation.total
        there = [event for event in mirror.events if event.replica == "r0"]
        drained_at = [event.reason for event in there].index("draining")
        # Who was in the batch by then; a request may have come in since the prediction.
        mine = {event.request for event in there[:drained_at] if event.kind == "admit"}
        later = there[drained_at:]
        assert [event for event in later if event.kind == "admit"] == []
        assert {event.request for event in later if event.kind == "finish"} <= mine
        again = await command(pair, "/replicas/r0:drain")
        assert (await ended(pair, again.operation)).phase == "succeeded"

        undrained = await command(pair, "/replicas/r0:undrain")
        assert undrained.operation is not None
        assert undrained.operation.phase == "succeeded"
        await watch.until(lambda mirror: state(mirror, "r0") == "ready")
        twice = await command(pair, "/replicas/r0:undrain")
        assert twice.operation is not None
        assert twice.operation.message == "it was ready already"


async def test_undrain_ends_a_drain_under_way(pair: EngineServer) -> None:
    async with watching(pair) as watch, asked(pair, 1_500), asked(pair, 1_500):
        await watch.until(lambda mirror: all(len(on(mirror, each)) == 1 for each in ("r0", "r1")))
        drain = await command(pair, "/replicas/r0:drain", mode="wait", deadline_s=None)
        assert drain.operation is not None
        mine = drain.operation.id
        mirror = await watch.until(lambda mirror: bool(blocked_by(mirror, mine)))
        assert "of at most 1500 tokens" in blocked_by(mirror, mine)[0]
        joined = await command(pair, "/replicas/r0:drain", deadline_s=600)
        assert joined.operation is not None
        assert joined.operation.id == drain.operation.id
        assert joined.operation.deadline_at is not None
        await command(pair, "/replicas/r0:undrain")
        assert (await ended(pair, drain.operation)).phase == "cancelled"
        running = await watch.until(lambda mirror: state(mirror, "r0") == "ready")
        assert len(on(running, "r0")) == 1


async def test_cancel_mode_ends_what_runs(pair: EngineServer) -> None:
    async with watching(pair) as watch, asked(pair, 1_500) as first, asked(pair, 1_500) as second:
        await watch.until(lambda mirror: all(len(on(mirror, each)) == 1 for each in ("r0", "r1")))
        drain = await command(pair, "/replicas/r1:drain", mode="cancel")
        assert (await ended(pair, drain.operation)).phase == "succeeded"
        await watch.until(lambda mirror: state(mirror, "r1") == "drained")
        done, _ = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        answer = done.pop().result()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "replica_draining")
        await command(pair, "/replicas/r1:undrain")


async def test_the_deadline_cancels_when_asked_to(pair: EngineServer) -> None:
    async with watching(pair) as watch, asked(pair, 1_500), asked(pair, 1_500):
        await watch.until(lambda mirror: all(len(on(mirror, each)) == 1 for each in ("r0", "r1")))
        drain = await command(pair, "/replicas/r0:drain", mode="wait", deadline_s=0.3, on_deadline="cancel")
        assert (await ended(pair, drain.operation)).phase == "succeeded"
        await watch.until(lambda mirror: state(mirror, "r0") == "drained")
        await command(pair, "/replicas/r0:undrain")


async def test_refusals(pair: EngineServer) -> None:
    assert (await refused(pair, "/replicas/r9:drain")).code == "unknown_replica"
    assert (await refused(pair, "/replicas/r9:undrain")).status == 404
    await command(pair, "/replicas/r0:drain")
    try:
        last = await refused(pair, "/replicas/r1:drain")
        assert (last.status, last.code) == (409, "would_break_min_ready")
        assert last.numbers["ready_after"] == 0
        migrate = await refused(pair, "/replicas/r1:drain", mode="migrate", force=True)
        assert (migrate.status, migrate.code, migrate.field) == (409, "no_other_replica", "mode")
    finally:
        await command(pair, "/replicas/r0:undrain")
