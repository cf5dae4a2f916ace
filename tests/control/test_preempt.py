"""Preempting one request through the control API, and moving it."""

import os

from infer_engine.protocol import Event, RequestRow
from support.asking import asked, command, ended, refused
from support.server import EngineServer
from support.watching import Mirror, watching


def running(mirror: Mirror) -> list[RequestRow]:
    return [row for shown in mirror.replicas.values() for row in shown.in_state("running")]


def moves(mirror: Mirror, request: str) -> list[Event]:
    return [event for event in mirror.events if event.kind == "move" and event.request == request]


async def test_a_running_request_moves_and_its_operation_says_so(pair: EngineServer) -> None:
    async with watching(pair) as watch, asked(pair, 600) as answer:
        await watch.until(lambda mirror: len(running(mirror)) == 1)
        row = running(watch.mirror)[0]
        to = "r1" if row.replica == "r0" else "r0"
        dry = await command(pair, f"/requests/{row.id}:preempt", to=to, dry_run=True)
        assert dry.operation is None
        assert dry.effect.numbers["moved"] == 1
        assert (await refused(pair, f"/requests/{row.id}:preempt", to="r9")).code == "unknown_replica"
        result = await command(pair, f"/requests/{row.id}:preempt", to=to, actor="ann")
        operation = await ended(pair, result.operation)
        assert (operation.phase, operation.kind, operation.target) == ("succeeded", "preempt", row.id)
        response = await answer
        assert (response.status_code, response.json()["usage"]["completion_tokens"]) == (200, 600)
        mirror = await watch.until(lambda mirror: bool(moves(mirror, row.id)))
        (move,) = moves(mirror, row.id)
        assert (move.to_replica, move.reason, move.actor) == (to, "preempted", f"uid:{os.getuid()} (ann)")
    assert (await refused(pair, "/requests/none:preempt")).code == "unknown_request"
    assert (await refused(pair, f"/requests/{row.id}:preempt")).code == "not_running"
