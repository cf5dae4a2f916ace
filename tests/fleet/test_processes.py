"""A fleet of real processes on a real, tiny model; and what is left when somebody dies."""

import os
import signal
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from infer_engine.fleet.feed import FeedItem
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, GenerationSpec
from infer_engine.model.sampling import Sampling
from infer_engine.protocol import Drain, Event, Step
from infer_engine.settings import ReplicaSettings, ServerSettings
from support.fleets import START_S, finished, until
from support.processes import alive, started_here, wait_gone
from support.tiny_model import write_tiny_gguf

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Real:
    fleet: Fleet
    feed: list[FeedItem] = field(default_factory=list)

    def steps(self, replica: str) -> list[Step]:
        return [item for item in self.feed if isinstance(item, Step) and item.replica == replica]

    def events(self, kind: str) -> list[Event]:
        return [item for item in self.feed if isinstance(item, Event) and item.kind == kind]

    def submit(self, prompt_tokens: int, max_tokens: int) -> Generation:
        return self.fleet.submit(
            GenerationSpec(
                prompt=tuple(range(10, 10 + prompt_tokens)),
                max_tokens=max_tokens,
                sampling=Sampling(temperature=0.0),
                stop_token_ids=(),
            )
        )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real(model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Real]:
    settings = ServerSettings(
        replicas=2,
        seed=3,
        replica=ReplicaSettings(
            model=str(model), kv_blocks=128, max_running=3, admit_limit_ratio=1.0, threads=1
        ),
    )
    bench = Real(Fleet(settings))
    bench.fleet.feed.subscribe(bench.feed.append)
    before = set(started_here())
    await bench.fleet.start()
    try:
        await until(lambda: len(bench.fleet.capacity.ready_replicas()) == 2, "two ready replicas", START_S)
        yield bench
    finally:
        mine = set(started_here()) - before
        await bench.fleet.stop()
        assert wait_gone(sorted(mine)) == []
        assert not bench.fleet.run_dir.exists()


async def test_two_processes_serve_the_same_model(real: Real) -> None:
    fleet = real.fleet
    pids = {fleet.replica(replica).pid for replica in ("r0", "r1")}
    assert len(pids) == 2
    assert os.getpid() not in pids
    observer = fleet.observe(None, 20, blocks=True)
    generations = [real.submit(20, 30) for _ in range(8)]
    await finished(*generations)
    assert {each.replica for each in generations} == {"r0", "r1"}
    assert {tuple(each.emitted) for each in generations} == {tuple(generations[0].emitted)}, (
        "greedy is greedy"
    )
    assert all(len(each.emitted) == 30 and each.finish_reason == "length" for each in generations)
    for replica in ("r0", "r1"):
        await until(lambda replica=replica: fleet.frame(replica).step == real.steps(replica)[-1].step)
        frame = fleet.frame(replica)
        assert frame.rows == []
        assert sum(run.count for run in frame.blocks or []) == 128
        assert {run.state for run in frame.blocks or []} == {"free", "cached"}
        hit_ratio = fleet.replica(replica).prefix_hit_ratio
        assert hit_ratio is not None
        status = fleet.replica(replica)
        assert (status.device, status.kv.block_size, status.invariant_violations) == ("cpu", 16, 0)
        assert status.ttft_s.p50 is not None
        assert status.itl_s.p99 is not None
    observer.close()


async def test_cancelling_running_and_queued_gives_all_blocks_back(real: Real) -> None:
    generations = [real.submit(30, 1500) for _ in range(8)]
    await until(lambda: sum(bool(each.emitted) for each in generations) == 6)
    queued = [each for each in generations if not each.emitted]
    for each in generations:
        assert real.fleet.cancel(each.id)
    await finished(*generations)
    assert {each.finish_reason for each in generations} == {"cancelled"}
    assert len(queued) == 2
    for replica in ("r0", "r1"):
        last = real.steps(replica)[-1]
        assert len(last.finished) > 0
        assert (last.running, last.waiting, last.kv_used, last.kv_free + last.kv_cached) == (0, 0, 0, 128)


async def test_drain_hands_the_queue_over_and_undrain_brings_it_back(real: Real) -> None:
    fleet = real.fleet
    long = [real.submit(30, 400) for _ in range(6)]
    await until(lambda: all(each.emitted for each in long))
    short = [real.submit(20, 5) for _ in range(6)]
    mine = [each for each in short if each.replica == "r0"]
    assert mine
    fleet.draining.drain("r0", Drain(mode="wait"))
    await finished(*short, *long)
    assert {each.finish_reason for each in (*short, *long)} == {"length"}
    moved = [event.request for event in real.events("move")]
    assert moved == [each.id for each in mine]
    assert all(each.replica == "r1" for each in mine)
    await until(lambda: fleet.replica("r0").state == "drained")
    assert fleet.replica("r0").kv.used == 0
    steps = len(real.steps("r0"))
    other = real.submit(20, 5)
    await finished(other)
    assert other.replica == "r1"
    assert len(real.steps("r0")) == steps
    fleet.draining.undrain("r0")
    back = [real.submit(20, 5) for _ in range(2)]
    await finished(*back)
    assert {each.replica for each in back} == {"r0", "r1"}


async def test_ctrl_c_in_the_terminal_is_not_for_the_replicas(real: Real) -> None:
    pid = real.fleet.replica("r1").pid
    assert pid is not None
    assert os.getsid(pid) != os.getsid(os.getpid())
    os.kill(pid, signal.SIGINT)
    generations = [real.submit(20, 5) for _ in range(4)]
    await finished(*generations)
    assert {(each.replica, each.finish_reason) for each in generations} == {
        ("r0", "length"),
        ("r1", "length"),
    }
    assert alive(pid)
    assert real.fleet.replica("r1").incarnation == 1


async def test_a_killed_replica_comes_back_and_its_sequences_went_on_elsewhere(real: Real) -> None:
    fleet = real.fleet
    generations = [real.submit(30, 900) for _ in range(4)]
    await until(lambda: all(each.emitted for each in generations))
    lost = [each for each in generations if each.replica == "r0"]
    others = [each for each in generations if each.replica == "r1"]
    pid = fleet.replica("r0").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await finished(*lost, *others)
    assert {each.finish_reason for each in (*lost, *others)} == {"length"}
    assert [each.moves for each in lost] == [1] * len(lost)
    assert {tuple(each.emitted) for each in (*lost, *others)} == {tuple(others[0].emitted)}
    await until(lambda: len(fleet.capacity.ready_replicas()) == 2)
    assert (fleet.replica("r0").incarnation, fleet.replica("r1").incarnation) == (2, 1)
    assert fleet.replica("r0").pid != pid
    again = [real.submit(30, 10) for _ in range(2)]
    await finished(*again)
    assert {tuple(each.emitted) for each in again} == {tuple(others[0].emitted[:10])}
