"""Two operators at once: writes with If-Match happen one after another, and a retry is no second write."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from infer_engine.audit_chain import Record
from infer_engine.control.audit import Audit
from infer_engine.control.audit_files import AuditFiles
from infer_engine.control.idempotency import Idempotency
from infer_engine.control.leases import Leases
from infer_engine.control.mutation import Mutation, Pipeline
from infer_engine.control.versions import Versions
from infer_engine.protocol import CommandResult, Effect, Undrain
from starlette.requests import Request
from starlette.responses import Response
from support.linear import Call, is_linearisable

SCENARIOS = 5_000
TARGET = "replica:r0"


class Turns(selectors.DefaultSelector):
    """Where a loop would wait for the world, because nobody in it can go on, this lets one of those who wait
    for their turn go on, drawn by chance: every place to wait is a place to interleave. Nothing sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._random = Random()
        self._waiting: list[asyncio.Future[None]] = []
        self.clock = 0

    def begin(self, random: Random) -> None:
        assert not self._waiting
        self._random, self.clock = random, 0

    async def here(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout != 0:
            assert self._waiting, "everybody waits for somebody else"
            self._waiting.pop(self._random.randrange(len(self._waiting))).set_result(None)
        return []


class SlowAudit(Audit):
    """Takes as long as the turns will have it."""

    turns: Turns

    async def record(self, record: Record) -> None:
        await self.turns.here()

    async def note(self, record: Record) -> None:
        await self.turns.here()


class World:
    """One value behind the real pipeline, and what the operators saw of it."""

    def __init__(self, seed: int, turns: Turns, directory: Path) -> None:
        self.random = Random(seed)
        self.turns = turns
        turns.begin(self.random)
        self.value = "start"
        self.applied: list[str] = []
        self.calls: list[Call] = []
        self.changes = 0
        audit = SlowAudit(AuditFiles(directory))
        audit.turns = self.turns
        pipeline = Pipeline(
            audit=audit,
            keys=Idempotency(lambda: 0.0),
            leases=Leases(lambda: 0.0, lambda: 0.0),
            versions=Versions(self._version, lambda: ["r0"]),
            saved=self.turns.here,
            current=lambda _: None,
        )
        mutation = Mutation(
            verb="undrain",
            body=Undrain,
            target=lambda *_: ("replica", "r0"),
            apply=self._apply,
            changes=lambda *_: TARGET,
            needs_version=True,
        )
        self.send: Callable[[Request], Awaitable[Response]] = pipeline.handler(mutation)

    def _version(self, _target: str) -> str:
        return f"v-{self.changes}"

    async def _apply(self, _request: Request, command: Undrain) -> CommandResult:
        await self.turns.here()
        self.value = command.reason
        self.changes += 1
        self.applied.append(command.reason)
        return CommandResult(operation=None, effect=Effect(summary=[command.reason]))

    async def operator(self, name: str) -> None:
        for number in range(self.random.randint(1, 3)):
            began = self.turns.tick()
            value, version = self.value, self._version(TARGET)
            self.calls.append(Call("read", began, self.turns.tick(), value))
            await self.turns.here()
            wanted, key = f"{name}{number}", f"{name}-{number}"
            began = self.turns.tick()
            answers = await asyncio.gather(
                *(self._write(wanted, key, version) for _ in range(self.random.randint(1, 2)))
            )
            statuses = {answer.status_code for answer in answers} - {409}
            assert len(statuses) == 1, statuses
            ok = statuses == {200}
            assert ok or statuses == {412}, statuses
            self.calls.append(Call("write", began, self.turns.tick(), wanted, value, ok))

    async def _write(self, wanted: str, key: str, version: str) -> Response:
        if self.random.random() < 0.5:
            await self.turns.here()
        return await self.send(_request(wanted, key, version))


def _request(reason: str, key: str, version: str) -> Request:
    body = msgspec.json.encode({"reason": reason})
    headers = {
        "content-type": "application/json",
        "idempotency-key": key,
        "if-match": f'"{version}"',
    }
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/control/v1/replicas/r0:undrain",
        "query_string": b"",
        "path_params": {"id": "r0"},
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "server": ("localhost", 80),
        "scheme": "http",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(scope, receive)


def test_writes_are_linearisable_and_retries_are_none(tmp_path: Path) -> None:
    turns = Turns()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(turns)) as runner:
        runner.run(play(turns, tmp_path))


async def play(turns: Turns, directory: Path) -> None:
    conflicts = 0
    for seed in range(SCENARIOS):
        world = World(seed, turns, directory)
        await asyncio.gather(world.operator("a"), world.operator("b"))
        assert len(world.applied) == len(set(world.applied)), (seed, world.applied)
        done = [call.value for call in world.calls if call.kind == "write" and call.ok]
        assert sorted(done) == sorted(world.applied), seed
        assert is_linearisable(world.calls, "start"), (seed, world.calls)
        conflicts += sum(not call.ok for call in world.calls)
    assert conflicts > SCENARIOS // 10


@pytest.mark.parametrize(
    ("calls", "possible"),
    [
        ([Call("read", 1, 2, "start"), Call("write", 3, 4, "x", "start"), Call("read", 5, 6, "x")], True),
        ([Call("write", 1, 2, "x", "start"), Call("read", 3, 4, "start")], False),
        ([Call("write", 1, 4, "x", "start"), Call("write", 2, 3, "y", "start")], False),
        ([Call("write", 1, 4, "x", "start"), Call("write", 2, 3, "y", "start", ok=False)], True),
        ([Call("write", 1, 2, "x", "start", ok=False)], False),
    ],
)
def test_the_checker_itself(calls: list[Call], possible: bool) -> None:
    assert is_linearisable(calls, "start") is possible
