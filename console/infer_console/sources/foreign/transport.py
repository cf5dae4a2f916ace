"""Our control API in front of somebody else's servers, inside the console: what looks is answered out of the
servers' own metrics and documents, what acts is refused. Everything above needs to know nothing of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import httpx2
import msgspec
from infer_engine.foreign.ours import OUR_COMMAND, OUR_GATEWAY
from infer_engine.protocol import (
    Delta,
    Envelope,
    EventDelta,
    Events,
    FleetDelta,
    Hello,
    Operations,
    Problem,
    ReplicaFrame,
    ReplicaGone,
    Requests,
    SnapshotBegin,
    SnapshotEnd,
    Status,
)

from infer_console.connect import Target
from infer_console.sources.failures import NotUnderstoodError, RefusedError
from infer_console.sources.foreign.fleet import WatchedFleet
from infer_console.sources.routes import PREFIX

#: What this console makes of servers that it can only watch.
CAPABILITIES = ("watch", "watched", "estimates", "tokenize")
#: Percentiles are put together of histograms whose bounds differ.
UNLIKE = "unlike_estimates"
#: Servers named in one command; of more the first ones are.
MOST_NAMED = 3
#: Where a server of ours tells what it kept.
RECORDER = "/recorder"
_JSON, _SSE = "application/json", "text/event-stream"


class ForeignTransport(httpx2.AsyncBaseTransport):
    """Owns the connections to the servers. ``to_server`` makes those of one."""

    def __init__(self, target: Target, to_server: Callable[[], httpx2.AsyncBaseTransport]) -> None:
        self._pace = target.pace
        self._fleet = WatchedFleet(target.watched, target.token, to_server, target.pace)
        #: Nobody said what it is, so it may be a gateway of ours.
        self._may_be_ours = any(each.kind == "auto" for each in target.watched)
        self._epoch = f"foreign-{time.time_ns():x}"

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._answer(request)
        except RefusedError as refusal:
            return _document(request, refusal.problem, refusal.problem.status)
        except NotUnderstoodError as error:
            problem = Problem(status=502, code="not_understood", title=str(error))
            return _document(request, problem, 502)

    async def aclose(self) -> None:
        await self._fleet.aclose()

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path.removeprefix(PREFIX)
        if request.method != "GET":
            raise await self._watched_only()
        match path:
            case "/hello":
                return _document(request, await self._hello())
            case "/state":
                return _document(request, await self._settled())
            case "/watch":
                await self._fleet.look()
                wanted = request.url.params
                rosters = (
                    wanted.get("replicas", "").split(",") if "roster" in wanted.get("detail", "") else []
                )
                return httpx2.Response(
                    200,
                    headers={"content-type": _SSE},
                    stream=_Messages(self._messages(frozenset(rosters))),
                    request=request,
                )
            case "/requests":
                return _document(request, await self._requests(request.url.params.get("replica")))
            case "/tokenize":
                return _document(request, await self._fleet.tokenize(request.url.params.get("text", "")))
            case "/events":
                await self._settled()
                return _document(request, Events(events=list(self._fleet.events)))
            case "/operations":
                return _document(request, Operations(operations=[]))
            case _:
                raise await self._watched_only(path)

    # --- what is told

    async def _hello(self) -> Hello:
        status = await self._fleet.look()
        return Hello(
            server_version=status.fleet.version or "",
            epoch=self._epoch,
            capabilities=self._capabilities(),
            fleet=status.fleet,
            role="viewer",
        )

    def _capabilities(self) -> list[str]:
        return [*CAPABILITIES, *([UNLIKE] if self._fleet.unlike else [])]

    async def _settled(self) -> Status:
        """Rates and percentiles need two looks."""
        status = await self._fleet.look()
        if self._fleet.looks < 2:
            await asyncio.sleep(self._pace.look_s)
            status = await self._fleet.look()
        return status

    async def _requests(self, replica: str | None) -> Requests:
        status = await self._fleet.look()
        rows = self._fleet.rows
        if not rows:
            raise RefusedError(
                Problem(
                    status=501,
                    code="watched_only",
                    title=f"{status.replicas[0].foreign or 'This server'} does not tell its requests",
                    detail=self._what_can("knows them"),
                )
            )
        return Requests(requests=[row for id, each in rows.items() if replica in (None, id) for row in each])

    async def _watched_only(self, path: str = "") -> RefusedError:
        if self._may_be_ours and not self._fleet.looks:
            await self._fleet.look()
        title, detail = "This server can only be watched", self._what_can("can do that")
        if path == RECORDER:
            title += ", and has no flight recorder to take the past from"
            detail = f"record what comes, with --duration 10m or into DIR/; {detail}"
        return RefusedError(Problem(status=501, code="watched_only", title=title, detail=detail))

    def _what_can(self, what: str) -> str:
        """What does that a server which is only watched does not, as a command."""
        if self._fleet.is_our_gateway:
            return f"{OUR_GATEWAY}'s control API {what}: {OUR_COMMAND}"
        urls = self._fleet.urls
        words = " ".join(f"--upstream {url}" for url in urls[:MOST_NAMED]) or "--upstream URL"
        more = " …" if len(urls) > MOST_NAMED else ""
        return f"our gateway in front of it {what}: infer-console serve {words}{more}"

    async def _messages(self, rosters: frozenset[str]) -> AsyncIterator[Envelope]:
        """A snapshot, and then what is, once a second."""
        seq = 0
        told = self._fleet.events[-1].seq if self._fleet.events else 0
        shown: dict[str, set[str]] = {}
        while True:
            status = await self._fleet.look()
            deltas: list[Delta] = [FleetDelta(fleet=status.fleet, totals=status.totals)]
            deltas += self._frames(status, rosters, shown)
            if seq == 0:
                version = status.fleet.version or ""
                begin = SnapshotBegin(server_version=version, capabilities=self._capabilities())
                deltas = [begin, *deltas, SnapshotEnd()]
                told = 0  # a console knows events by their numbers
            deltas += [EventDelta(event=event) for event in self._fleet.events if event.seq > told]
            told = self._fleet.events[-1].seq if self._fleet.events else told
            for delta in deltas:
                yield Envelope(epoch=self._epoch, seq=seq + 1, prev=seq, at=time.time(), delta=delta)
                seq += 1
            await asyncio.sleep(self._pace.look_s)

    def _frames(self, status: Status, rosters: frozenset[str], shown: dict[str, set[str]]) -> list[Delta]:
        """``shown`` holds the requests told of before, by replica, and is brought up to date."""
        deltas: list[Delta] = []
        told = self._fleet.rows if rosters else {}
        present = {replica.id for replica in status.replicas}
        for replica in status.replicas:
            rows = told.get(replica.id) if replica.id in rosters else None
            now = {row.id for row in rows or ()}
            frame = ReplicaFrame(
                replica=replica.id,
                step=self._fleet.looks,
                at=time.time(),
                status=replica,
                rows=rows,
                removed=sorted(shown.get(replica.id, set()) - now),
                order=None if rows is None else [row.id for row in rows],
            )
            shown[replica.id] = now
            deltas.append(frame)
        for gone in shown.keys() - present:
            del shown[gone]
            deltas.append(ReplicaGone(replica=gone))
        return deltas


class _Messages(httpx2.AsyncByteStream):
    def __init__(self, envelopes: AsyncIterator[Envelope]) -> None:
        self._envelopes = envelopes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for envelope in self._envelopes:
                head = f"id: {envelope.epoch}:{envelope.seq}\ndata: ".encode()
                yield head + msgspec.json.encode(envelope) + b"\n\n"
        except (NotUnderstoodError, RefusedError) as error:
            # As a broken connection it is tried again, with the reason on the screen.
            raise httpx2.ReadError(str(error)) from error
        except httpx2.TimeoutException as error:
            raise httpx2.ReadError("no answer in time") from error


def _document(request: httpx2.Request, document: msgspec.Struct, status: int = 200) -> httpx2.Response:
    return httpx2.Response(
        status, headers={"content-type": _JSON}, content=msgspec.json.encode(document), request=request
    )
