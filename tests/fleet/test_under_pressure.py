"""Real processes whose KV memory is far too small for what they are asked: what is preempted by swap again
and again is still answered as if it had been alone; also when its replica drains or is killed."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from infer_engine.fleet import lifecycle
from infer_engine.fleet.feed import FeedItem
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, GenerationSpec
from infer_engine.model.sampling import Sampling
from infer_engine.protocol import Drain, Step
from infer_engine.settings import ReplicaSettings, ServerSettings
from support.fleets import START_S, finished, until
from support.processes import started_here, wait_gone
from support.running import make_request, make_runner, run_all
from support.tiny_model import write_tiny_gguf

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUESTS = 20
TOKENS = 120
SETTINGS = {"kv_blocks": 40, "block_size": 4, "dtype": "fp32", "threads": 1}


def prompt(number: int) -> list[int]:
    return [3 + (number * 17 + position * 5) % 240 for position in range(8 + number % 5)]


class Pressed:
    """A fleet, what its replicas tell of their steps, and what each request must be answered."""

    def __init__(self, fleet: Fleet, expected: list[list[int]]) -> None:
        self.fleet = fleet
        self.expected = expected
        self.steps: list[Step] = []
        fleet.feed.subscribe(self._hear)

    def _hear(self, item: FeedItem) -> None:
        if isinstance(item, Step):
            self.steps.append(item)

    def submit(self) -> list[Generation]:
        self.steps.clear()
        return [
            self.fleet.submit(
                GenerationSpec(
                    prompt=tuple(prompt(number)),
                    max_tokens=TOKENS,
                    sampling=Sampling(temperature=0.0),
                    stop_token_ids=(),
                )
            )
            for number in range(REQUESTS)
        ]

    def swaps(self, replica: str) -> int:
        told = [each for step in self.steps if step.replica == replica for each in step.preempted]
        return sum(each.mode == "swap" for each in told)

    async def idle(self) -> None:
        for replica in ("r0", "r1"):
            await until(lambda replica=replica: self.fleet.replica(replica).kv.used == 0)
            assert self.fleet.replica(replica).invariant_violations == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pressed(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Pressed]:
    model = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")
    settings = ServerSettings(
        replicas=2,
        replica=ReplicaSettings(
            model=str(model),
            max_running=8,
            admit_limit_ratio=1.0,
            preempt_mode="swap",
            host_blocks=40,
            **SETTINGS,  # type: ignore[arg-type]
        ),
    )
    before = set(started_here())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifecycle, "FIRST_BACKOFF_S", 0.01)
        fleet = Fleet(settings)
        bench = Pressed(fleet, await asyncio.to_thread(undisturbed, model))
        await fleet.start()
        try:
            await until(lambda: len(fleet.capacity.ready_replicas()) == 2, "two ready replicas", START_S)
            yield bench
        finally:
            mine = set(started_here()) - before
            await fleet.stop()
            assert wait_gone(sorted(mine)) == []


def undisturbed(model: Path) -> list[list[int]]:
    """What each request is answered alone."""
    runner = make_runner(model=str(model), **SETTINGS)
    requests = [make_request(number, prompt(number), max_tokens=TOKENS) for number in range(REQUESTS)]
    for request in requests:
        run_all(runner, [request])
    runner.close()
    return [request.output for request in requests]


async def test_a_drain_while_requests_are_swapped_out_loses_none_of_their_tokens(pressed: Pressed) -> None:
    fleet = pressed.fleet
    generations = pressed.submit()
    await until(lambda: pressed.swaps("r0") >= 3, "preemptions by swap")
    fleet.draining.drain("r0", Drain())
    await finished(*generations)
    assert [each.emitted for each in generations] == pressed.expected
    assert {each.finish_reason for each in generations} == {"length"}
    await until(lambda: fleet.replica("r0").state == "drained")
    await pressed.idle()
    fleet.draining.undrain("r0")
    await until(lambda: len(fleet.capacity.ready_replicas()) == 2)


async def test_a_kill_amid_preemptions_harms_nobody(pressed: Pressed) -> None:
    fleet = pressed.fleet
    generations = pressed.submit()
    await until(lambda: pressed.swaps("r0") >= 3 and pressed.swaps("r1") >= 3, "preemptions by swap")
    pid, incarnation = fleet.replica("r0").pid, fleet.replica("r0").incarnation
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await finished(*generations)
    assert {each.finish_reason for each in generations} == {"length"}
    assert any(each.moves for each in generations)
    assert [each.emitted for each in generations] == pressed.expected
    await until(lambda: len(fleet.capacity.ready_replicas()) == 2)
    assert fleet.replica("r0").incarnation == incarnation + 1
    await pressed.idle()
    again = pressed.submit()
    await finished(*again)
    assert [each.emitted for each in again] == pressed.expected
    await pressed.idle()
