"""Injected traffic: real requests, marked as such, one injection at a time, gone when told to."""

import asyncio

import pytest
from infer_engine.control import guard_rail
from infer_engine.control.context import Context
from infer_engine.protocol import Inject, RequestRow, StopInjection, TrafficStatus
from support.asking import command, ended, refused
from support.server import EngineServer
from support.watching import Mirror, watching

#: With this seed the first burst comes within a tenth of a second.
SOON = 31


def traffic(mirror: Mirror) -> TrafficStatus:
    assert mirror.fleet is not None
    return mirror.fleet.fleet.traffic


def rows_of(mirror: Mirror) -> list[RequestRow]:
    return [row for replica in mirror.replicas.values() for row in replica.rows.values()]


async def test_an_injection_runs_to_its_end(pair: EngineServer) -> None:
    dry = await command(pair, "/injections", rate_per_s=20, duration_s=1, dry_run=True)
    assert dry.operation is None
    assert dry.effect.numbers["requests"] == 20
    async with watching(pair) as watch:
        result = await command(pair, "/injections", rate_per_s=20, duration_s=1, seed=4, actor="ann")
        mirror = await watch.until(lambda mirror: rows_of(mirror) != [])
        assert {(row.synthetic, row.tenant, row.tier) for row in rows_of(mirror)} == {
            (True, "synthetic", "interactive")
        }
        mirror = await watch.until(lambda mirror: traffic(mirror).running)
        assert (traffic(mirror).profile, traffic(mirror).rate_per_s) == ("chat", 20)
        operation = await ended(pair, result.operation)
        assert operation.phase == "succeeded"
        mirror = await watch.until(lambda mirror: not traffic(mirror).running)
    status = traffic(mirror)
    assert 5 <= status.sent <= 45
    assert (status.finished, status.failed, status.in_flight) == (status.sent, 0, 0)
    assert status.stopped_because is None
    assert operation.message.startswith(f"{status.sent} sent, {status.sent} finished, 0 failed")
    assert [event.reason for event in mirror.events if event.kind == "traffic"][-2:] == ["started", "stopped"]
    admits = [event for event in mirror.events if event.kind == "admit"]
    assert sum(event.synthetic for event in admits) == status.sent


async def test_stop_ends_it_at_once(pair: EngineServer) -> None:
    async with watching(pair) as watch:
        result = await command(pair, "/injections", rate_per_s=50, duration_s=600, profile="long-context")
        await watch.until(lambda mirror: traffic(mirror).running and traffic(mirror).in_flight > 2)
        second = await refused(pair, "/injections")
        assert (second.status, second.code) == (409, "injection_running")
        stopped = await command(pair, "/injections", "DELETE", actor="ann")
        assert stopped.operation is not None
        assert stopped.operation.phase == "succeeded"
        operation = await ended(pair, result.operation)
        assert (operation.phase, operation.message) == ("cancelled", "stopped by an operator")
        mirror = await watch.until(lambda mirror: not traffic(mirror).running and rows_of(mirror) == [])
        assert traffic(mirror).stopped_because == "stopped by an operator"
    again = await command(pair, "/injections", "DELETE")
    assert again.operation is not None
    assert again.operation.message == "no test traffic was running"


async def test_at_most_so_many_are_in_flight(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a fleet that loads for ever nothing is answered; a burst of 250 arrives soon after the start."""
    monkeypatch.setattr(guard_rail, "MOST_WAITING_PER_REPLICA", 1_000)
    injector = context.injector
    operation = injector.start(Inject(profile="burst", rate_per_s=50, duration_s=600, seed=SOON))
    async with asyncio.timeout(60):
        while injector.status().not_sent < 186:  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(0.02)
    status = injector.status()
    assert (status.sent, status.in_flight, status.failed) == (64, 64, 0)
    held = context.fleet.held_rows()
    assert len(held) == 64
    assert all(row.synthetic and row.waiting_reason == "loading" for row in held)
    injector.stop(StopInjection())
    assert context.operations.get(operation.id).phase == "cancelled"
    assert (injector.status().running, injector.status().in_flight, context.fleet.held_rows()) == (
        False,
        0,
        [],
    )
    # Stopping before its first step, and starting again, leaves nothing of the old one either.
    injector.start(Inject(rate_per_s=50))
    injector.stop(StopInjection())
    injector.start(Inject(rate_per_s=50))
    await asyncio.sleep(0)
    assert injector.status().running


async def test_unknown_profiles_are_refused(pair: EngineServer) -> None:
    problem = await refused(pair, "/injections", profile="ddos")
    assert (problem.status, problem.field) == (422, "profile")
    assert (
        "chat, long-context, long-answer, shared-prefix, burst, batch-backfill, mixed, trace"
        in problem.detail
    )
