"""The control API's answers about what is: JSON documents, each from one moment."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from typing import get_args

from msgspec import Struct, structs
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from infer_engine.control.context import Context
from infer_engine.control.decode import check_tenant
from infer_engine.control.past import LAST_AT, query_number
from infer_engine.control.principal import principal_of
from infer_engine.control.problems import echo, json_response
from infer_engine.control.records import Account
from infer_engine.control.resume import Sessions
from infer_engine.control.sse import EventStream
from infer_engine.control.taps import TokenTap, parse_tap_query
from infer_engine.control.versions import REPLICAS
from infer_engine.control.watch import FIRST_OBSERVATION_S, LIVE_STATES, MAX_WATCHERS, WatchSession
from infer_engine.control.watch_query import FASTEST_HZ, Query, parse_query
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, Refusal, refuse
from infer_engine.fleet.unknown import unknown_replica, unknown_request
from infer_engine.protocol import (
    EVERYONE,
    AuditPage,
    Blocks,
    Events,
    Hello,
    Kv,
    Leases,
    Operations,
    ReplicaFrame,
    RequestRow,
    Requests,
    RequestState,
    TenantStatus,
)

MAX_RECORDS = 1_000
DEFAULT_RECORDS = 100
#: Beyond the last record of any audit.
MAX_POSITION = 999_999_999
MAX_EVENTS = 10_000
MAX_ROWS = 10_000
#: Finished requests that are told beside those that are asked for.
MAX_ENDED = 200
DEFAULT_EVENTS = 100
REQUEST_STATES: tuple[RequestState, ...] = get_args(RequestState)


class Reads:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._streams = 0
        self._simulated = context.fleet.is_simulated
        self._sessions = Sessions(context.fleet.epoch, self._session)

    async def hello(self, request: Request) -> Response:
        context = self._context
        principal = principal_of(request.scope)
        return json_response(
            Hello(
                server_version=context.server_version,
                epoch=context.fleet.epoch,
                capabilities=context.capabilities,
                fleet=context.status().fleet,
                subject=principal.subject if principal else None,
                role=principal.role if principal else None,
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
        if "limit" in request.query_params:
            limit = _whole_number(request, "limit", MAX_ROWS, 1, MAX_ROWS)
            rows, omitted = self._context.fleet.oldest_rows(limit, replica, state)
        else:
            rows, omitted = self._context.fleet.rows(replica, state), {}
        after = query_number(request, "ended_after", 0.0, LAST_AT)
        ended = [] if after is None else self._context.fleet.ended_after(after, MAX_ENDED)
        if replica is not None:
            ended = [row for row in ended if row.replica == replica]
        return json_response(Requests(simulated=self._simulated, requests=rows, omitted=omitted, ended=ended))

    async def request(self, request: Request) -> Response:
        request_id: str = request.path_params["id"]
        row = self._context.fleet.row(request_id)
        if row is None:
            raise unknown_request(request_id)
        return json_response(row)

    async def timeline(self, request: Request) -> Response:
        request_id, fleet = request.path_params["id"], self._context.fleet
        found = fleet.timelines.find(request_id)
        if found is None:
            raise unknown_request(request_id)
        return json_response(found.document(request_id, fleet.moment, simulated=self._simulated))

    async def blocks(self, request: Request) -> Response:
        replica = request.path_params["id"]
        self._must_exist(replica)
        if self._context.fleet.settings.launcher_of(replica) == "upstream":
            raise refuse(
                409,
                "blocks_unknown",
                "The replica never tells its blocks.",
                f"{replica} is a server of others, and those tell how much of their KV is in use, not which "
                "block holds what.",
            )
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
        return self._tagged(replace(self._context.fleet.limits.now(), simulated=self._simulated), REPLICAS)

    async def tenants(self, _request: Request) -> Response:
        return json_response(replace(self._context.fleet.tenants.now(), simulated=self._simulated))

    async def replica(self, request: Request) -> Response:
        replica = request.path_params["id"]
        self._must_exist(replica)
        return self._tagged(self._context.fleet.replica(replica), f"replica:{replica}")

    async def tenant(self, request: Request) -> Response:
        name: str = request.path_params["name"]
        check_tenant(name)
        return self._tagged(tenant_status(self._context.fleet, name), f"tenant:{name}")

    async def leases(self, _request: Request) -> Response:
        held = self._context.leases.current()
        return json_response(Leases(leases=[] if held is None else [structs.replace(held, id="", token=0)]))

    async def audit(self, request: Request) -> Response:
        limit = _whole_number(request, "limit", DEFAULT_RECORDS, 1, MAX_RECORDS)
        given = request.query_params
        if "before" in given and "after" in given:
            raise _bad_parameter("after", "either before or after can be given.")
        files = self._context.audit.files
        try:
            if "after" in given:
                after = _whole_number(request, "after", 0, 0, MAX_POSITION)
                records = await asyncio.to_thread(files.after, after, limit)
            else:
                before = _whole_number(request, "before", MAX_POSITION, 1, MAX_POSITION)
                records = await asyncio.to_thread(files.before, before, limit)
        except OSError as error:
            why = f"{files.path}: {error.strerror or error}"
            raise refuse(503, "audit_unavailable", "The audit cannot be read.", why) from error
        return json_response(AuditPage(records=records, trouble=self._context.audit.trouble))

    def _tagged(self, document: Struct, target: str) -> Response:
        """With the version that a command for it names."""
        response = json_response(document)
        version = self._context.versions().version(target)
        if version is not None:
            response.headers["etag"] = f'"{version}"'
        return response

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
            return self._attached(request, session, lambda: session.resume(seq))
        self._check_streams()
        fresh = self._sessions.new(query)
        return self._attached(request, fresh, fresh.messages)

    def _attached(
        self, request: Request, session: WatchSession, messages: Callable[[], AsyncGenerator[bytes]]
    ) -> EventStream:
        """The stream of somebody who is seen to be there for as long as it is open."""
        self._check_streams()
        presence = self._context.presence
        claimed = request.query_params.get("actor", "")
        number = presence.enter(principal_of(request.scope), claimed, time.time())

        def closed() -> None:
            presence.leave(number)
            self._sessions.ended(session)

        return self._stream(messages, closed)

    def _session(self, query: Query, left: Callable[[WatchSession], None]) -> WatchSession:
        return WatchSession(self._context, query, clock=time.monotonic, wall=time.time, left=left)

    async def tokens(self, request: Request) -> EventStream:
        account = Account(request, "tokens")
        generations, gone = self._tapped(request)
        account.of_target("request", ",".join(each.id for each in [*generations, *gone]))
        await self._context.audit.note(account.record("received"))
        return self._stream(TokenTap(self._context, generations, gone).messages)

    async def token_times(self, request: Request) -> EventStream:
        """As ``tokens`` without the text: nothing of it is content, so anybody may look and nothing is
        noted."""
        generations, gone = self._tapped(request)
        return self._stream(TokenTap(self._context, generations, gone, content=False).messages)

    def _tapped(self, request: Request) -> tuple[list[Generation], list[RequestRow]]:
        """The live requests and the ended ones that are asked for; Refusal where one is unknown."""
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
                raise unknown_request(each)
        return generations, gone

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
            raise unknown_replica(replica)


def tenant_status(fleet: Fleet, name: str) -> TenantStatus:
    """Of one that nothing is known of, too: it may use what all others may."""
    tenants = fleet.tenants.now()
    for tenant in tenants.tenants:
        if tenant.name == name:
            return tenant
    return TenantStatus(
        name=name,
        limits=tenants.default,
        own=name == EVERYONE,
        running=0,
        waiting=0,
        kv_blocks=0,
        requests_last_minute=0,
        refused=0,
    )


def replica_of(request: Request, fleet: Fleet) -> str:
    """The replica that the path names; Refusal (404) when there is none of that id."""
    replica: str = request.path_params["id"]
    if replica not in fleet.replica_ids():
        raise unknown_replica(replica)
    return replica


def _bad_parameter(name: str, detail: str) -> Refusal:
    return refuse(400, "invalid_field", f"{name} does not fit.", detail, field=name)


def _whole_number(request: Request, name: str, default: int, lowest: int, highest: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 10) or not lowest <= int(given) <= highest:
        raise _bad_parameter(name, f"must be a whole number from {lowest} to {highest}, got {echo(given)}.")
    return int(given)
