"""What became of it: effects and operations."""

from typing import Any

from msgspec import Struct

from infer_engine.protocol.words import PROTOCOL_VERSION, OperationPhase


class Effect(Struct, frozen=True, kw_only=True):
    """What a command will do, predicted from live state (a dry run) or just before it was applied."""

    summary: list[str]
    numbers: dict[str, float | None] = {}
    warnings: list[str] = []


class Operation(Struct, frozen=True, kw_only=True):
    """A command under way. It outlives the client that asked for it."""

    id: str
    kind: str
    target: str
    phase: OperationPhase
    actor: str = ""
    reason: str = ""
    started_at: float
    ended_at: float | None = None
    deadline_at: float | None = None
    done: int | None = None
    total: int | None = None
    blocked_by: list[str] = []
    message: str = ""
    params: dict[str, Any] = {}


class CommandResult(Struct, frozen=True, kw_only=True):
    #: None for a dry run.
    operation: Operation | None
    effect: Effect
    #: Of the spec that the command changes: as it is now in a dry run (what to send as ``If-Match`` with the
    #: command itself), as it became otherwise. None where none is changed.
    resource_version: str | None = None
    #: What the server could not do beside it, such as writing down that it was done.
    warnings: list[str] = []


class Operations(Struct, frozen=True, kw_only=True):
    version: int = PROTOCOL_VERSION
    simulated: bool = False
    operations: list[Operation]
