"""Operations: bounded, watched, ended in exactly one phase, and never orphaned."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from infer_engine.control import operations as module
from infer_engine.control.operations import ENDED, Handle, OperationFailed, Operations
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import Operation


@pytest.fixture
async def heard() -> list[Operation]:
    return []


@pytest.fixture
async def operations(heard: list[Operation]) -> AsyncGenerator[Operations]:
    registry = Operations(lambda: 7.0, heard.append)
    yield registry
    await registry.close()


def start(registry: Operations, work: module.Work, target: str = "r0") -> Operation:
    return registry.start("drain", target, work, actor="ann", reason="test")


async def ended(registry: Operations, operation: Operation) -> Operation:
    async with asyncio.timeout(60):
        while registry.get(operation.id).phase not in ENDED:  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(0)
    return registry.get(operation.id)


async def test_work_that_returns_succeeds(operations: Operations, heard: list[Operation]) -> None:
    async def work(handle: Handle) -> None:
        handle.update(done=1, total=2)
        handle.update(done=2, total=2, message="done")

    operation = await ended(operations, start(operations, work))
    assert (operation.phase, operation.done, operation.message, operation.ended_at) == (
        "succeeded",
        2,
        "done",
        7.0,
    )
    assert [each.phase for each in heard] == ["running", "succeeded"]


async def test_work_that_fails_says_why(operations: Operations) -> None:
    async def work(handle: Handle) -> None:
        raise OperationFailed("r0 is gone")

    operation = await ended(operations, start(operations, work))
    assert (operation.phase, operation.message) == ("failed", "r0 is gone")


async def test_our_own_fault_is_logged_and_told(
    operations: Operations, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(handle: Handle) -> None:
        raise KeyError("secret")

    operation = await ended(operations, start(operations, work))
    assert (operation.phase, operation.message) == ("failed", "internal error: KeyError")
    assert "failed" in caplog.text


async def test_cancel_is_at_once_and_final(operations: Operations) -> None:
    async def work(handle: Handle) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            handle.update(message="too late to say anything")

    operation = start(operations, work)
    await asyncio.sleep(0)
    operations.cancel(operation.id, "undrained")
    assert operations.get(operation.id).phase == "cancelled"
    await asyncio.sleep(0)
    operations.cancel(operation.id, "again")
    assert operations.get(operation.id).message == "undrained"


async def test_cancel_before_the_work_began(operations: Operations) -> None:
    async def work(handle: Handle) -> None:
        raise AssertionError("must not run")

    operation = start(operations, work)
    operations.cancel(operation.id, "changed my mind")
    await operations.close()
    assert operations.get(operation.id).phase == "cancelled"


async def test_watchers_hear_changes_once(operations: Operations) -> None:
    seen: list[Operation] = []
    unsubscribe = operations.subscribe(seen.append)

    async def work(handle: Handle) -> None:
        handle.update(done=1)
        handle.update(done=1)

    await ended(operations, start(operations, work))
    assert [(each.phase, each.done) for each in seen] == [("running", None), ("running", 1), ("succeeded", 1)]
    unsubscribe()
    operations.record("cancel", "req-1", "done", actor="", reason="")
    assert len(seen) == 3


async def test_old_ones_are_forgotten_running_ones_are_not(operations: Operations) -> None:
    async def forever(handle: Handle) -> None:
        await asyncio.Event().wait()

    running = start(operations, forever)
    for n in range(module.MAX_KEPT + 50):
        operations.record("cancel", f"req-{n}", "done", actor="", reason="")
    kept = operations.newest_first()
    assert len(kept) == module.MAX_KEPT
    assert kept[-1].id == running.id
    assert kept[0].target == f"req-{module.MAX_KEPT + 49}"
    with pytest.raises(Refusal) as refused:
        operations.get("op-2")
    assert refused.value.problem.status == 404


async def test_too_many_running_are_refused(operations: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RUNNING", 2)

    async def forever(handle: Handle) -> None:
        await asyncio.Event().wait()

    start(operations, forever, "r0")
    start(operations, forever, "r1")
    with pytest.raises(Refusal) as refused:
        start(operations, forever, "r2")
    assert refused.value.problem.code == "too_many_operations"


async def test_closing_ends_what_runs(operations: Operations) -> None:
    async def forever(handle: Handle) -> None:
        await asyncio.Event().wait()

    operation = start(operations, forever)
    await operations.close()
    assert operations.get(operation.id).phase == "cancelled"
    assert len(asyncio.all_tasks()) == 1


async def test_running_finds_the_newest_of_a_kind(operations: Operations) -> None:
    async def forever(handle: Handle) -> None:
        await asyncio.Event().wait()

    start(operations, forever, "r0")
    second = start(operations, forever, "r1")
    assert operations.running("drain", "r1") == second
    assert operations.running("drain") == second
    assert operations.running("inject") is None
