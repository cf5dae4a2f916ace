"""A fenced replica is out without its own help, and stays out; what it still says is nobody's."""

import pytest
import zmq
from infer_engine.fleet import lifecycle
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import Fence
from infer_engine.replica.messages import StepReport, Stop, TokenOut
from infer_engine.replica.wire import decode_to_replica, encode, identity
from support.fleets import ThreadReplica, finished, running_fleet, until


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_BACKOFF_S", 0.01)


async def test_requests_leave_at_once_and_another_replica_starts() -> None:
    async with running_fleet(replicas=2, held=True) as bench:
        fleet = bench.fleet
        queued = [bench.submit(4, 3) for _ in range(4)]
        mine = [each for each in queued if each.replica == "r0"]
        effect = fleet.fencing.predict("r0", Fence())
        assert (effect.numbers["requests"], effect.numbers["start_over"]) == (2, 2)
        assert fleet.fencing.fence("r0", "xid 79", actor="ann") == "r2"
        assert {each.replica for each in mine} == {"r1"}, "before its process had a chance to end"
        bench.launcher.held = False
        bench.launcher.now("r1").runner.release()
        await finished(*queued)
        assert {each.finish_reason for each in queued} == {"length"}
        await until(lambda: fleet.members.lifecycles["r0"].ended)
        bench.launcher.now("r2").runner.release()
        await until(lambda: fleet.replica("r2").state == "ready")
        assert (fleet.replica("r0").state, fleet.replica("r0").error) == ("fenced", "xid 79")
        assert len(bench.launcher.lives["r0"]) == 1, "not started again"
        fenced = [event for event in bench.events("replica") if event.reason == "fenced"]
        assert [(event.actor, event.message) for event in fenced] == [("ann", "xid 79")]
        assert "nothing will change" in fleet.fencing.predict("r0", Fence()).summary[0]
        assert fleet.fencing.fence("r0", "again") is None


async def test_release_starts_it_again() -> None:
    async with running_fleet(replicas=2) as bench:
        fleet = bench.fleet
        fleet.fencing.fence("r0", "")
        await until(lambda: fleet.members.lifecycles["r0"].ended)
        assert "3 replicas will be there, 2 are wanted" in fleet.fencing.predict_release("r0").warnings[0]
        fleet.fencing.release("r0")
        await bench.ready(3)
        assert fleet.replica("r0").incarnation == 2
        assert fleet.replica("r0").error is None
        fleet.fencing.release("r0")
        assert "is not fenced" in fleet.fencing.predict_release("r0").summary[0]


async def test_released_before_its_process_was_gone_is_no_crash() -> None:
    async with running_fleet(replicas=2) as bench:
        bench.fleet.fencing.fence("r0", "")
        bench.fleet.fencing.release("r0")
        await until(lambda: bench.fleet.replica("r0").state == "ready")
        states = [event.reason for event in bench.events("replica") if event.replica == "r0"]
        assert states[-3:] == ["fenced", "starting", "ready"]


async def test_the_last_ready_replica_needs_force() -> None:
    async with running_fleet(replicas=1) as bench:
        with pytest.raises(Refusal) as refused:
            bench.fleet.fencing.predict("r0", Fence())
        assert (refused.value.problem.status, refused.value.problem.code) == (409, "would_break_min_ready")
        assert bench.fleet.fencing.predict("r0", Fence(force=True)).warnings
        with pytest.raises(Refusal) as unknown:
            bench.fleet.fencing.predict("r9", Fence())
        assert unknown.value.problem.status == 404


async def test_replacements_are_bounded() -> None:
    async with running_fleet(replicas=2, max_replicas=3) as bench:
        assert bench.fleet.fencing.fence("r0", "") == "r2"
        await bench.ready(2)
        effect = bench.fleet.fencing.predict("r1", Fence())
        assert "at most 3 replicas (max_replicas)" in effect.summary[-1]
        assert bench.fleet.fencing.fence("r1", "") is None


async def test_one_that_does_not_end_of_being_killed_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process stuck in the kernel: it goes on computing, and says so."""
    monkeypatch.setattr(lifecycle, "KILL_GRACE_S", 0.05)
    async with running_fleet(replicas=2, held=True) as bench:
        fleet = bench.fleet
        zombie = bench.launcher.now("r0")
        with monkeypatch.context() as patch:
            for way in ("kill", "hang_up"):
                patch.setattr(zombie, way, lambda: None)
            generations = [bench.submit(4, 6) for _ in range(2)]
            await bench.step_until("r0", lambda: any(each.emitted for each in generations))
            fleet.members.lifecycles["r0"].declare_dead("it stalled")
            assert [each.id for each in generations if each.replica == "r0" and not each.finished] == []
            await until(lambda: fleet.replica("r0").incarnation == 2)
            await until(lambda: fleet.replica("r0").state == "ready")
            ignored = fleet.link_faults()["ignored"]
            tokens = [list(each.emitted) for each in generations]
            zombie.runner.allow(1)
            await until(lambda: fleet.link_faults()["ignored"] > ignored)
            assert [list(each.emitted) for each in generations] == tokens
            assert fleet.replica("r0").incarnation == 2
            loop = zombie.loop
            assert loop is not None
            zombie.runner.release()
            await until(lambda: loop.stopping, "it is told to end")
        _let_go(zombie)


async def test_late_reports_of_a_fenced_replica_are_a_strangers() -> None:
    async with running_fleet(replicas=2, held=True) as bench:
        generation = bench.submit(4, 4)
        source = str(generation.replica)
        endpoint = bench.launcher.now(source).config.endpoint
        bench.fleet.fencing.fence(source, "broken")
        await until(lambda: bench.fleet.members.lifecycles[source].ended)
        context = zmq.Context[zmq.Socket[bytes]]()
        ghost = context.socket(zmq.DEALER)
        ghost.setsockopt(zmq.LINGER, 0)
        ghost.setsockopt(zmq.IDENTITY, identity(source, 1))
        ghost.connect(endpoint)
        try:
            late = StepReport(
                incarnation=1,
                step=9,
                duration_s=0.0,
                running=1,
                waiting=0,
                decode_tokens=1,
                prefill_tokens=0,
                kv_used=1,
                kv_free=1,
                kv_cached=0,
                tokens=[TokenOut(id=generation.id, token=6666, index=0)],
            )
            ghost.send(encode(late))
            await until(lambda: ghost.poll(0), "it is told to end")
            assert decode_to_replica(ghost.recv()) == Stop()
        finally:
            ghost.close()
            context.term()
        assert generation.emitted == []
        assert bench.fleet.replica(source).state == "fenced"


def _let_go(replica: ThreadReplica) -> None:
    replica.runner.release()
    replica.kill()


async def test_a_restart_is_no_crash_and_wakes_one_that_was_given_up() -> None:
    async with running_fleet(replicas=1, load_error=("no such model", 3)) as bench:
        await until(lambda: bench.fleet.replica("r0").state == "failed")
        bench.launcher.load_error = None
        await bench.fleet.members.lifecycles["r0"].restart()
        await bench.ready(1)
        await bench.fleet.members.lifecycles["r0"].restart()
        await until(lambda: bench.fleet.replica("r0").incarnation == 3)
        await bench.ready(1)
        states = [event.reason for event in bench.events("replica")][-3:]
        assert states == ["ready", "restarting", "ready"]


async def test_nothing_goes_on_from_suspect_tokens() -> None:
    async with running_fleet(replicas=2, max_running=1, held=True) as bench:
        generations = [bench.submit(4, 5, streams=True) for _ in range(4)]
        started, queued = (each for each in generations if each.replica == "r0")
        await bench.step_until("r0", lambda: bool(started.emitted))
        effect = bench.fleet.fencing.predict("r0", Fence(suspect=True))
        assert "1 requests end with an error (replica_suspect)" in effect.warnings[0]
        bench.fleet.fencing.fence("r0", "wrong sums", suspect=True)
        assert (started.finish_reason, started.error_code) == ("error", "replica_suspect")
        bench.launcher.now("r1").runner.release()
        await finished(queued)
        assert (queued.finish_reason, len(queued.emitted)) == ("length", 5)


async def test_an_answer_of_which_nothing_was_sent_starts_over() -> None:
    async with running_fleet(replicas=2, max_running=1, held=True) as bench:
        whole, other = bench.submit(4, 5), bench.submit(4, 5)
        source = str(whole.replica)
        await bench.step_until(source, lambda: len(whole.emitted) >= 2)
        whole.emitted[0] = 6666  # what the bad machine made of it
        effect = bench.fleet.fencing.predict(source, Fence(suspect=True))
        assert (effect.numbers["start_over"], effect.warnings) == (1, [])
        bench.fleet.fencing.fence(source, "wrong sums", suspect=True)
        assert (whole.emitted, list(whole.emitted_s), whole.restarts) == ([], [], 1)
        bench.launcher.now(str(other.replica)).runner.release()
        await finished(whole, other)
        assert (whole.finish_reason, whole.emitted) == ("length", [1004, 1005, 1006, 1007, 1008])
