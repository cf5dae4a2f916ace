"""The commands that decide which replicas there are and what becomes of them."""

from starlette.requests import Request

from infer_engine.control.context import Context
from infer_engine.control.lifecycle import Lifecycles
from infer_engine.control.reads import replica_of
from infer_engine.control.scaling import Scales
from infer_engine.protocol import CommandResult, Fence, Release, Restart, Scale, Shed


class ReplicaCommands:
    def __init__(self, context: Context) -> None:
        self._context = context
        wall = context.fleet.feed.wall
        self._lifecycles = Lifecycles(context.fleet, context.operations, wall)
        self._scales = Scales(context.fleet, context.operations, wall)

    async def fence(self, request: Request, command: Fence) -> CommandResult:
        return self._lifecycles.fence(replica_of(request, self._context.fleet), command)

    async def release(self, request: Request, command: Release) -> CommandResult:
        return self._lifecycles.release(replica_of(request, self._context.fleet), command)

    async def restart(self, request: Request, command: Restart) -> CommandResult:
        return self._lifecycles.restart(replica_of(request, self._context.fleet), command)

    async def scale(self, _request: Request, command: Scale) -> CommandResult:
        return self._scales.scale(command)

    async def shed(self, _request: Request, command: Shed) -> CommandResult:
        return self._lifecycles.shed(command)
