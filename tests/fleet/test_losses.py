"""Replicas that die, hang, come back or do not; and messages from the dead."""

import asyncio

import pytest
import zmq
from infer_engine.fleet import lifecycle
from infer_engine.fleet.generation import Refusal
from infer_engine.replica.messages import Loading, Stop
from infer_engine.replica.wire import decode_to_replica, encode, identity
from support.fleets import finished, lone_token, running_fleet, until


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_BACKOFF_S", 0.01)


async def test_requests_of_a_dead_replica_go_on_elsewhere() -> None:
    async with running_fleet(replicas=2, max_running=1, held=True) as bench:
        fleet = bench.fleet
        generations = [bench.submit(4, 5) for _ in range(4)]
        bench.launcher.now("r0").runner.allow(1)
        bench.launcher.now("r1").runner.allow(1)
        streaming, queued = (each for each in generations if each.replica == "r0")
        others = [each for each in generations if each.replica == "r1"]
        await until(lambda: streaming.emitted and others[0].emitted)
        bench.launcher.held = False
        bench.launcher.now("r0").kill()
        bench.launcher.now("r1").runner.release()
        await finished(*generations)
        assert {each.finish_reason for each in generations} == {"length"}
        assert {tuple(each.emitted) for each in generations} == {tuple(others[0].emitted)}
        assert [each.moves for each in (streaming, queued, *others)] == [1, 1, 0, 0]
        moves = {event.request: event for event in bench.events("move")}
        assert moves.keys() == {streaming.id, queued.id}
        assert (moves[streaming.id].replica, moves[streaming.id].reason) == ("r0", "replica_lost")
        assert (moves[streaming.id].tokens, moves[queued.id].tokens) == (5, None)
        row = fleet.row(streaming.id)
        assert row is not None
        assert row.moves == 1
        await bench.ready()
        assert (fleet.replica("r0").incarnation, fleet.replica("r1").incarnation) == (2, 1)
        states = [event.reason for event in bench.events("replica") if event.replica == "r0"]
        assert states == ["ready", "failed", "restarting", "ready"]
        assert "SIGKILL" in str(next(e.message for e in bench.events("replica") if e.reason == "failed"))
        again = [bench.submit(4, 3) for _ in range(2)]
        await finished(*again)
        assert {each.replica for each in again} == {"r0", "r1"}
        assert fleet.replica("r0").error is None


async def test_a_cancelled_request_of_a_dead_replica_ends_as_cancelled() -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        generation = bench.submit(4, 20)
        bench.launcher.now("r0").runner.allow(1)
        await until(lambda: generation.emitted)
        bench.fleet.cancel(generation.id)
        bench.launcher.now("r0").kill()
        await finished(generation)
        assert (generation.finish_reason, generation.error_code) == ("cancelled", "cancelled_by_operator")


async def test_a_failing_device_fails_the_replica_with_its_own_words() -> None:
    async with running_fleet(replicas=1) as bench:
        bench.launcher.now("r0").runner.error = "device lost"
        bench.submit()
        await until(lambda: any(event.reason == "failed" for event in bench.events("replica")))
        failed = next(event for event in bench.events("replica") if event.reason == "failed")
        assert failed.message == "device lost"
        await until(lambda: bench.fleet.replica("r0").incarnation >= 2)


async def test_messages_of_a_past_life_are_ignored_and_their_sender_ended() -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        first = bench.launcher.now("r0")
        endpoint = first.config.endpoint
        first.kill()
        await until(lambda: bench.fleet.replica("r0").incarnation == 2)
        await bench.ready()
        generation = bench.submit(4, 4)
        runner = bench.launcher.now("r0").runner
        runner.allow(1)
        await until(lambda: len(generation.emitted) == 1)

        context = zmq.Context[zmq.Socket[bytes]]()
        ghost = context.socket(zmq.DEALER)
        ghost.setsockopt(zmq.LINGER, 0)
        ghost.setsockopt(zmq.IDENTITY, identity("r0", 1))
        ghost.connect(endpoint)
        try:
            ghost.send(encode(lone_token(incarnation=1, request=generation.id)))
            await until(lambda: ghost.poll(0), "the ghost is told to stop")
            assert decode_to_replica(ghost.recv()) == Stop()
            ghost.send(b"\xc1 no message at all")
            ghost.send_multipart((b"two", b"frames"))
            await until(lambda: bench.fleet.link_faults()["malformed"] == 2)
        finally:
            ghost.close()
            context.term()
        assert bench.fleet.link_faults()["ignored"] == 1
        runner.release()
        await finished(generation)
        assert [token < 2000 for token in generation.emitted] == [True] * 4


async def test_a_stream_with_a_hole_or_an_echo_ends_rather_than_goes_on() -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        runner = bench.launcher.now("r0").runner
        hole, echo = bench.submit(4, 40), bench.submit(4, 40)
        await bench.step_until("r0", lambda: len(hole.emitted) >= 3 and len(echo.emitted) >= 3)
        receive = bench.fleet._receive  # pyright: ignore[reportPrivateUsage]
        past = lone_token(incarnation=0, request=hole.id, index=9)
        receive(identity("r0", 1), past)
        assert not hole.finished, "what an older life says does not count, whoever sends it"
        assert bench.fleet.link_faults()["ignored"] == 1
        for generation, index in ((hole, len(hole.emitted) + 1), (echo, 0)):
            receive(identity("r0", 1), lone_token(incarnation=1, request=generation.id, index=index))
            assert (generation.finish_reason, generation.error_code) == ("error", "stream_gap")
            assert 6666 not in generation.emitted
        runner.release()
        await until(lambda: bench.steps("r0")[-1].kv_used == 0, "the replica was told to give them up")
        assert bench.steps("r0")[-1].step < 40


async def test_a_replica_that_keeps_dying_is_given_up_and_nobody_waits_for_it() -> None:
    async with running_fleet(replicas=1, load_error=("bad memory", 1)) as bench:
        held = bench.submit()
        await until(lambda: bench.fleet.replica("r0").state == "failed" and held.finished)
        assert len(bench.launcher.lives["r0"]) == lifecycle.MOST_CRASHES
        assert (held.finish_reason, held.error_code) == ("error", "no_ready_replica")
        assert "bad memory" in str(bench.fleet.replica("r0").error)
        with pytest.raises(Refusal) as refused:
            bench.submit()
        assert (refused.value.problem.status, refused.value.problem.code) == (503, "no_ready_replica")


async def test_what_will_fail_again_is_not_tried_again() -> None:
    async with running_fleet(replicas=1, load_error=("no such model", 3)) as bench:
        await until(lambda: bench.fleet.replica("r0").state == "failed")
        await asyncio.sleep(0.05)
        assert len(bench.launcher.lives["r0"]) == 1
        assert bench.fleet.replica("r0").error == "no such model (not started again)"


async def test_a_replica_with_work_that_does_not_step_has_stalled() -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        fleet = bench.fleet
        await until(lambda: fleet.replica("r0").health == "idle")
        generation = bench.submit(4, 3)
        assert fleet.replica("r0").health == "ok"
        bench.ahead_s += 30
        assert fleet.replica("r0").health == "stalled"
        assert fleet.replica("r0").waiting == 1
        # It speaks again, but still does not step.
        receive = fleet._receive  # pyright: ignore[reportPrivateUsage]
        receive(identity("r0", 1), Loading(incarnation=1, progress=1.0, what=""))
        assert fleet.replica("r0").health == "stalled"
        bench.launcher.now("r0").runner.release()
        await finished(generation)
        await until(lambda: fleet.replica("r0").health == "idle")
        bench.ahead_s += 30  # nothing was heard for so long
        assert fleet.replica("r0").health == "stalled"
