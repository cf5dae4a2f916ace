"""One server of a scenario: a real fleet on virtual time, and the control API's commands through their real
pipeline, without HTTP."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from infer_engine.audit_chain import Record
from infer_engine.control.audit import Audit
from infer_engine.control.audit_files import AuditFiles
from infer_engine.control.changes import Changes
from infer_engine.control.commands import Commands
from infer_engine.control.context import Context
from infer_engine.control.idempotency import Idempotency
from infer_engine.control.leases import Leases
from infer_engine.control.mutation import Mutation, Pipeline
from infer_engine.control.operations import Operations
from infer_engine.control.replica_commands import ReplicaCommands
from infer_engine.control.timed_change import TimedChanges
from infer_engine.fleet.fleet import Fleet
from infer_engine.protocol import GatewayStatus, Operation
from infer_engine.settings import ServerSettings
from simulation.fleet.book import Book
from simulation.fleet.disk import Disk, DiskSpecs
from simulation.fleet.machines import Machines
from starlette.requests import Request
from starlette.responses import Response
from support.virtual_loop import LoopClock

#: Unix seconds at which virtual time begins.
EPOCH_AT = 1_800_000_000.0


class SlowAudit(Audit):
    """Takes a while, so that others get in between; keeps nothing."""

    random: Random

    async def record(self, record: Record) -> None:
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.choice([0.0, 0.05, 0.4]))

    async def note(self, record: Record) -> None:
        """Of no interest here."""


class Server:
    """From ``start`` to ``stop`` or ``die``."""

    def __init__(self, settings: ServerSettings, machines: Machines, disk: Disk, random: Random) -> None:
        self.machines = machines
        self.disk = DiskSpecs(disk)
        clock = LoopClock(asyncio.get_running_loop())
        self.fleet = Fleet(
            settings,
            run_dir=Path("/nonexistent"),
            launch=machines.launch,
            link=machines.link,
            clock=clock.now,
            wall=lambda: EPOCH_AT + clock.now(),
            spec_dir=self.disk,
            real_clock=clock.now,
        )
        self.announced: dict[str, Operation] = {}
        self.operations = Operations(self.fleet.feed.wall, self._announce)
        audit = SlowAudit(AuditFiles(Path("/nonexistent")))
        audit.random = random
        missing: Any = None  # what no command here looks at
        context = Context(
            fleet=self.fleet,
            tokenizer=missing,
            operations=self.operations,
            injector=missing,
            gateway_status=GatewayStatus,
            server_version="scenario",
            audit=audit,
            keys=Idempotency(clock.now),
            leases=Leases(self.fleet.feed.wall, clock.now),
        )
        self.book = Book(self.fleet, self.operations, context.versions(), disk)
        self._pipeline = Pipeline(
            audit=audit,
            keys=context.keys,
            leases=context.leases,
            versions=context.versions(),
            saved=self.book.saved,
            current=lambda _: None,
        )
        self.changes = Changes(Commands(context), ReplicaCommands(context))
        self._handlers: dict[str, Any] = {}

    def _announce(self, operation: Operation) -> None:
        self.announced[operation.id] = operation

    async def start(self) -> None:
        # Its directory is never made: nothing here has a socket or a log.
        self.fleet._run_dir.open = lambda: None  # pyright: ignore[reportPrivateUsage]
        await self.fleet.start()
        TimedChanges(self.fleet, self.operations, self.fleet.feed.wall).resume()
        self.book.begin()

    async def stop(self) -> None:
        await self.operations.close()
        await self.fleet.stop()
        await self.fleet.specs.save()

    async def die(self) -> None:
        """Without a word to anybody, and nothing that it did not write before is written."""
        self.disk.cut()
        self.machines.close()
        await self.operations.close()
        await self.fleet.stop()

    # --- commands ------------------------------------------------------------------------------------------

    async def send(self, verb: str, target: str, body: dict[str, Any], headers: dict[str, str]) -> Response:
        """``target`` is a replica, a request or a tenant, as the verb has it."""
        mutation: Mutation[Any] = getattr(self.changes, verb)
        handler = self._handlers.get(verb)
        if handler is None:
            watched = replace(mutation, apply=self.book.watching(mutation))
            handler = self._handlers[verb] = self._pipeline.handler(watched)
        return await handler(_request(f"/{verb}/{target}", target, body, headers))


def _request(path: str, target: str, body: dict[str, Any], headers: dict[str, str]) -> Request:
    content = msgspec.json.encode(body)
    headers = {"content-type": "application/json", **headers}
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "path_params": {"id": target, "name": target},
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "server": ("localhost", 80),
        "scheme": "http",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    return Request(scope, receive)
