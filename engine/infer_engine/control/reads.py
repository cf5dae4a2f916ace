"""The control API's answers about what is: JSON documents, each from one moment."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response

from infer_engine.control.context import Context
from infer_engine.control.problems import echo, json_response
from infer_engine.control.resume import Sessions
from infer_engine.control.sse import EventStream
from infer_engine.control.taps import TokenTap, parse_tap_query
from infer_engine.control.watch import FIRST_OBSERVATION_S, LIVE_STATES, MAX_WATCHERS, WatchSession
from infer_engine.control.watch_query import FASTEST_HZ, Query, parse_query
from infer_engine.fleet.generation import Generation, Refusal, refuse
from infer_engine.protocol import (
    Blocks,
    Events,
    Hello,
    Kv,
    Operations,
    ReplicaFrame,
    RequestRow,
    Requests,
    RequestState,
)

MAX_EVENTS = 10_000
DEFAULT_EVENTS = 100
REQUEST_STATES: tuple[RequestState, ...] = get_args(RequestState)


class Reads:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._streams = 0
        self._simulated = context.fleet.is_simulated
        self._sessions = Sessions(context.fleet.epoch, self._session)

    async def hello(self, _request: Request) -> Response:
        context = self._context
        return json_response(
            Hello(
                server_version=context.server_version,
                epoch=context.fleet.epoch,
                capabilities=context.capabilities,
                fleet=context.status().fleet,
            )
        )

    async def state(self, _request: Request) -> Response:
        return json_response(self._context.status())

    async def requests(self, request: Request) -> Response:
        state = request.query_params.get("state")
        if state is not None and state not in REQUEST_STATES:
            raise _bad_parameter("state", f"allowed are {', '.join(REQUEST_STATES)}, got {echo(state)}.")
        replica = request.query_params.get("replica")
        if replica is not None:
            self._must_exist(replica)
        rows = self._context.fleet.rows(replica, state)
        return json_response(Requests(simulated=self._simulated, requests=rows))

    async def request(self, request: Request) -> Response:
        row = self._context.fleet.row(request.path_params["id"])
        if row is None:
            raise unknown_request()
        return json_response(row)

    async def timeline(self, request: Request) -> Response:
        request_id, fleet = request.path_params["id"], self._context.fleet
        found = fleet.timelines.find(request_id)
        if found is None:
            raise unknown_request()
        return json_response(found.document(request_id, fleet.moment, simulated=self._simulated))

    async def blocks(self, request: Request) -> Response:
        replica = request.path_params["id"]
        self._must_exist(replica)
        frame = await self._observed(replica)
        kv = frame.status.kv if frame.status is not None else Kv()
        if frame.blocks is None or kv.total is None or kv.block_size is None:
            raise refuse(
                409,
                "blocks_unknown",
                "The replica does not tell its blocks now.",
                f"{replica} is {self._context.fleet.replica(replica).state}.",
            )
        return json_response(
            Blocks(
                simulated=self._simulated,
                replica=replica,
                block_size=kv.block_size,
                total=kv.total,
                blocks=frame.blocks,
            )
        )

    async def _observed(self, replica: str) -> ReplicaFrame:
        """A frame with blocks; they are only told while somebody looks, so look for a moment."""
        fleet = self._context.fleet
        with closing(fleet.observe(replica, FASTEST_HZ, blocks=True)):
            deadline_s = time.monotonic() + FIRST_OBSERVATION_S
            while (frame := fleet.frame(replica)).blocks is None and time.monotonic() < deadline_s:
                if fleet.replica(replica).state not in LIVE_STATES:
                    break
                await asyncio.sleep(1 / FASTEST_HZ)
            return frame

    async def events(self, request: Request) -> Response:
        limit = _whole_number(request, "limit", DEFAULT_EVENTS, 1, MAX_EVENTS)
        return json_response(
            Events(simulated=self._simulated, events=self._context.fleet.feed.events(limit=limit))
        )

    async def operations(self, _request: Request) -> Response:
        return json_response(
            Operations(simulated=self._simulated, operations=self._context.operations.newest_first())
        )

    async def operation(self, request: Request) -> Response:
        return json_response(self._context.operations.get(request.path_params["id"]))

    async def limits(self, _request: Request) -> Response:
        return json_response(self._context.fleet.limits())

    async def tenants(self, _request: Request) -> Response:
        return json_response(self._context.fleet.tenants())

    async def watch(self, request: Request) -> EventStream:
        """``since`` or ``Last-Event-ID`` names the last message that the client has: it gets what follows, a
        fresh snapshot where it asks for something else now, or 410."""
        query = parse_query(
            request.query_params.get("replicas"),
            request.query_params.get("detail"),
            request.query_params.get("hz"),
            self._context.fleet.replica_ids(),
            request.query_params.get("others"),
        )
        since = request.query_params.get("since") or request.headers.get("last-event-id")
        found = self._sessions.find(since, query) if since is not None else None
        if found is not None:
            session, seq = found
            return self._stream(lambda: session.resume(seq), lambda: self._sessions.ended(session))
        self._check_streams()
        fresh = self._sessions.new(query)
        return self._stream(fresh.messages, lambda: self._sessions.ended(fresh))

    def _session(self, query: Query, left: Callable[[WatchSession], None]) -> WatchSession:
        return WatchSession(self._context, query, clock=time.monotonic, wall=time.time, left=left)

    async def tokens(self, request: Request) -> EventStream:
        fleet = self._context.fleet
        generations: list[Generation] = []
        gone: list[RequestRow] = []
        ids = parse_tap_query(request.query_params.get("requests"))
        for each in ids:
            generation, row = fleet.find(each), fleet.row(each)
            if generation is not None:
                generations.append(generation)
            elif row is not None:
                gone.append(row)
            else:
                raise unknown_request()
        if self._context.content_read is not None:
            self._context.content_read(request.scope, ids)
        return self._stream(TokenTap(self._context, generations, gone).messages)

    def _check_streams(self) -> None:
        if self._streams >= MAX_WATCHERS:
            raise Refusal(
                refuse(
                    503, "too_many_watchers", "Too many streams are open.", numbers={"allowed": MAX_WATCHERS}
                ).problem,
                retry_after_s=5.0,
            )

    def _stream(
        self, messages: Callable[[], AsyncGenerator[bytes]], closed: Callable[[], None] = lambda: None
    ) -> EventStream:
        self._check_streams()
        self._streams += 1  # now, not when it begins to send: a burst must not pass the limit

        def when_closed() -> None:
            self._streams -= 1
            closed()

        return EventStream(messages(), when_closed)

    def _must_exist(self, replica: str) -> None:
        if replica not in self._context.fleet.replica_ids():
            raise unknown_replica()


def unknown_replica() -> Refusal:
    return refuse(404, "unknown_replica", "There is no such replica.", field="replica")


def unknown_request() -> Refusal:
    return refuse(404, "unknown_request", "There is no such request, or no longer.", field="request")


def _bad_parameter(name: str, detail: str) -> Refusal:
    return refuse(400, "invalid_field", f"{name} does not fit.", detail, field=name)


def _whole_number(request: Request, name: str, default: int, lowest: int, highest: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 10) or not lowest <= int(given) <= highest:
        raise _bad_parameter(name, f"must be a whole number from {lowest} to {highest}, got {echo(given)}.")
    return int(given)
