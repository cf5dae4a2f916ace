"""The commands that decide which replicas there are and what becomes of them."""

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from infer_engine.control.context import Context
from infer_engine.control.decode import decode
from infer_engine.control.guard import read_body
from infer_engine.control.lifecycle import Lifecycles
from infer_engine.control.problems import json_response
from infer_engine.control.reads import unknown_replica
from infer_engine.control.routes import Handler
from infer_engine.control.scaling import Scales
from infer_engine.protocol import Fence, Release, Restart, Scale, Shed


class ReplicaCommands:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._lifecycles = Lifecycles(context.fleet, context.operations, time.time)
        self._scales = Scales(context.fleet, context.operations, time.time)

    async def fence(self, request: Request) -> Response:
        replica = self._replica(request)
        return json_response(self._lifecycles.fence(replica, decode(Fence, await read_body(request))))

    async def release(self, request: Request) -> Response:
        replica = self._replica(request)
        return json_response(self._lifecycles.release(replica, decode(Release, await read_body(request))))

    async def restart(self, request: Request) -> Response:
        replica = self._replica(request)
        return json_response(self._lifecycles.restart(replica, decode(Restart, await read_body(request))))

    async def scale(self, request: Request) -> Response:
        return json_response(self._scales.scale(decode(Scale, await read_body(request))))

    async def shed(self, request: Request) -> Response:
        return json_response(self._lifecycles.shed(decode(Shed, await read_body(request))))

    def _replica(self, request: Request) -> str:
        replica: str = request.path_params["id"]
        if replica not in self._context.fleet.replica_ids():
            raise unknown_replica()
        return replica


def durable(context: Context, handler: Handler) -> Handler:
    """Answers when what was changed is on the disk; Refusal where it cannot be written."""

    async def handle(request: Request) -> Response | ASGIApp:
        response = await handler(request)
        await context.fleet.specs.saved()
        return response

    return handle
