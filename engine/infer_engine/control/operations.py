"""Commands under way. An operation outlives the client that asked for it and can be watched from anywhere."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import structs

from infer_engine.fleet.generation import refuse
from infer_engine.fleet.unknown import unknown_operation
from infer_engine.protocol import Operation, OperationPhase

log = logging.getLogger(__name__)

#: Operations remembered; those still running are never forgotten.
MAX_KEPT = 200
MAX_RUNNING = 200

ENDED: frozenset[OperationPhase] = frozenset({"succeeded", "failed", "cancelled"})

Listener = Callable[[Operation], None]


class OperationFailed(Exception):
    """Raised by an operation's work: it cannot succeed, and ``str()`` says why."""


class Handle:
    """An operation as its own work sees it."""

    def __init__(self, operations: "Operations", operation_id: str) -> None:
        self._operations = operations
        self.id = operation_id

    @property
    def operation(self) -> Operation:
        return self._operations.get(self.id)

    def update(self, **changes: Any) -> None:
        """Change fields of the operation; watchers hear of it only when something is different."""
        self._operations.change(self.id, changes)


Work = Callable[[Handle], Coroutine[Any, Any, None]]


class Operations:
    """The list of operations and the owner of their tasks. ``wall`` gives Unix seconds; ``announce`` hears of
    every change of phase, listeners of every change."""

    def __init__(self, wall: Callable[[], float], announce: Listener) -> None:
        self._wall = wall
        self._announce = announce
        self._operations: dict[str, Operation] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._listeners: list[Listener] = []
        self._count = 0
        self._closed = False

    def get(self, operation_id: str) -> Operation:
        """Refusal (404) when there is none of that id, or no longer."""
        operation = self._operations.get(operation_id)
        if operation is None:
            raise unknown_operation(operation_id)
        return operation

    def newest_first(self) -> list[Operation]:
        return list(reversed(self._operations.values()))

    def running(self, kind: str, target: str | None = None) -> Operation | None:
        """The newest operation of ``kind`` (on ``target``, when given) that has not ended."""
        for operation in self.newest_first():
            matches = operation.kind == kind and target in (None, operation.target)
            if matches and operation.phase not in ENDED:
                return operation
        return None

    def ensure_room(self) -> None:
        """Refusal when nothing more can be started: to be asked before a command takes effect, so that a
        refused one has none."""
        if self._closed:
            raise refuse(503, "stopping", "The server is stopping.")
        if len(self._tasks) >= MAX_RUNNING:
            raise refuse(
                429,
                "too_many_operations",
                "Too many operations are running.",
                numbers={"running": len(self._tasks), "allowed": MAX_RUNNING},
            )

    def start(
        self,
        kind: str,
        target: str,
        work: Work,
        *,
        actor: str,
        reason: str,
        deadline_at: float | None = None,
        params: dict[str, Any] | None = None,
        refusable: bool = True,
    ) -> Operation:
        """Run ``work`` as an operation: it succeeds when ``work`` returns and fails when it raises. It begins
        after this returns, so that what it reports on can be done in between. ``refusable=False`` is for
        what lowers the load or was promised room before, and is bounded by other means."""
        if refusable or self._closed:
            self.ensure_room()
        operation = self._add(
            Operation(
                id=self._next_id(),
                kind=kind,
                target=target,
                phase="running",
                actor=actor,
                reason=reason,
                started_at=self._wall(),
                deadline_at=deadline_at,
                params=params or {},
            )
        )
        task = asyncio.create_task(self._run(Handle(self, operation.id), work))
        self._tasks[operation.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(operation.id, None))
        return operation

    def record(
        self,
        kind: str,
        target: str,
        message: str,
        *,
        actor: str,
        reason: str,
        params: dict[str, Any] | None = None,
    ) -> Operation:
        """An operation that was done the moment it was asked for."""
        now = self._wall()
        return self._add(
            Operation(
                id=self._next_id(),
                kind=kind,
                target=target,
                phase="succeeded",
                actor=actor,
                reason=reason,
                started_at=now,
                ended_at=now,
                message=message,
                params=params or {},
            )
        )

    def cancel(self, operation_id: str, message: str) -> None:
        """End a running operation as cancelled, at once; nothing happens to one that has ended."""
        if self.get(operation_id).phase in ENDED:
            return
        self._end(operation_id, "cancelled", message)
        task = self._tasks.get(operation_id)
        if task is not None:
            task.cancel()

    def change(self, operation_id: str, changes: dict[str, Any]) -> None:
        before = self._operations.get(operation_id)
        if before is None or before.phase in ENDED:
            return
        after = structs.replace(before, **changes)
        if after == before:
            return
        self._operations[operation_id] = after
        for listener in list(self._listeners):
            listener(after)
        if after.phase != before.phase:
            self._announce(after)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Hear of every new and changed operation; call what is returned to stop."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    async def close(self) -> None:
        """End what still runs, as cancelled; nothing can be started after it."""
        self._closed = True
        tasks = list(self._tasks.values())
        for operation_id in list(self._tasks):
            self.cancel(operation_id, "the server stopped")
        await asyncio.gather(*tasks, return_exceptions=True)

    def _next_id(self) -> str:
        self._count += 1
        return f"op-{self._count}"

    def _add(self, operation: Operation) -> Operation:
        self._operations[operation.id] = operation
        excess = len(self._operations) - MAX_KEPT
        ended = [
            each.id for each in self._operations.values() if each.phase in ENDED and each is not operation
        ]
        for operation_id in ended[: max(0, excess)]:
            del self._operations[operation_id]
        for listener in list(self._listeners):
            listener(operation)
        self._announce(operation)
        return operation

    async def _run(self, handle: Handle, work: Work) -> None:
        try:
            await work(handle)
        except OperationFailed as failure:
            self._end(handle.id, "failed", str(failure))
        except Exception as error:  # our own fault: say so to the operator and to the log
            log.exception("operation %s failed", handle.id)
            self._end(handle.id, "failed", f"internal error: {type(error).__name__}")
        else:
            self._end(handle.id, "succeeded", None)

    def _end(self, operation_id: str, phase: OperationPhase, message: str | None) -> None:
        changes: dict[str, Any] = {"phase": phase, "ended_at": self._wall(), "blocked_by": []}
        if message is not None:
            changes["message"] = message
        self.change(operation_id, changes)
