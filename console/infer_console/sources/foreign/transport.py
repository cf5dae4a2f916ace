"""Our control API in front of somebody else's server, inside the console: what looks is answered out of the
server's own metrics and documents, what acts is refused. So everything above needs to know nothing of it."""

import asyncio
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx2
import msgspec
from infer_engine.foreign.adapters import ADAPTERS, Adapter, read, recognise
from infer_engine.foreign.asking import Answer, Asking
from infer_engine.foreign.reading import Reading
from infer_engine.foreign.watching import Watching
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
from infer_console.sources.failures import NotUnderstoodError
from infer_console.sources.routes import PREFIX

PERIOD_S = 1.0
#: Documents that never change while a server lives are asked for so often.
SELDOM_S = 30.0
SELDOM = frozenset({"/version", "/v1/models", "/model_info", "/server_info", "/props"})
#: What this console makes of a server that it can only watch.
CAPABILITIES = ("watch", "watched", "estimates")
_JSON, _SSE = "application/json", "text/event-stream"


class ForeignTransport(httpx2.AsyncBaseTransport):
    """Owns the connections to the server. ``to_server`` carries them."""

    def __init__(self, target: Target, to_server: httpx2.AsyncBaseTransport) -> None:
        assert target.foreign is not None
        self._asking = Asking(target.base_url, target.token, to_server)
        #: None: to be found out.
        self._given: Adapter | None = ADAPTERS.get(target.foreign)
        self._adapter = self._given
        self._watching = Watching(urlsplit(target.base_url).netloc)
        self._epoch = f"foreign-{time.time_ns():x}"
        self._looking = asyncio.Lock()
        self._status: Status | None = None
        self._looked_s = 0.0
        self._seldom: dict[str, tuple[float, Answer]] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._answer(request)
        except _Refusal as refusal:
            return _document(request, refusal.problem, refusal.problem.status)
        except NotUnderstoodError as error:
            problem = Problem(status=502, code="not_understood", title=str(error))
            return _document(request, problem, 502)

    async def aclose(self) -> None:
        await self._asking.aclose()

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path.removeprefix(PREFIX)
        if request.method != "GET":
            raise _watched_only()
        match path:
            case "/hello":
                return _document(request, await self._hello())
            case "/state":
                return _document(request, await self._settled())
            case "/watch":
                await self._look()
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
            case "/events":
                await self._settled()
                return _document(request, Events(events=list(self._watching.events)))
            case "/operations":
                return _document(request, Operations(operations=[]))
            case _:
                raise _watched_only()

    # --- what is told

    async def _hello(self) -> Hello:
        status = await self._look()
        return Hello(
            server_version=status.fleet.version or "",
            epoch=self._epoch,
            capabilities=list(CAPABILITIES),
            fleet=status.fleet,
            role="viewer",
        )

    async def _settled(self) -> Status:
        """Rates and percentiles need two looks."""
        status = await self._look()
        if self._watching.looks < 2:
            await asyncio.sleep(PERIOD_S)
            status = await self._look()
        return status

    async def _requests(self, replica: str | None) -> Requests:
        status = await self._look()
        rows = self._watching.rows
        if not rows:
            raise _Refusal(
                Problem(
                    status=501,
                    code="watched_only",
                    title=f"{status.replicas[0].foreign or 'This server'} does not tell its requests",
                    detail="it can only be watched",
                )
            )
        return Requests(requests=[row for id, each in rows.items() if replica in (None, id) for row in each])

    async def _messages(self, rosters: frozenset[str]) -> AsyncIterator[Envelope]:
        """A snapshot, and then what is, once a second."""
        seq = 0
        told = self._watching.events[-1].seq if self._watching.events else 0
        shown: dict[str, set[str]] = {}
        while True:
            status = await self._look()
            deltas: list[Delta] = [FleetDelta(fleet=status.fleet, totals=status.totals)]
            deltas += self._frames(status, rosters, shown)
            if seq == 0:
                version = status.fleet.version or ""
                begin = SnapshotBegin(server_version=version, capabilities=list(CAPABILITIES))
                deltas = [begin, *deltas, SnapshotEnd()]
                told = 0  # a console knows events by their numbers
            deltas += [EventDelta(event=event) for event in self._watching.events if event.seq > told]
            told = self._watching.events[-1].seq if self._watching.events else told
            for delta in deltas:
                yield Envelope(epoch=self._epoch, seq=seq + 1, prev=seq, at=time.time(), delta=delta)
                seq += 1
            await asyncio.sleep(PERIOD_S)

    def _frames(self, status: Status, rosters: frozenset[str], shown: dict[str, set[str]]) -> list[Delta]:
        """``shown`` holds the requests told of before, by replica, and is brought up to date."""
        deltas: list[Delta] = []
        present = {replica.id for replica in status.replicas}
        for replica in status.replicas:
            rows = self._watching.rows.get(replica.id) if replica.id in rosters else None
            now = {row.id for row in rows or ()}
            frame = ReplicaFrame(
                replica=replica.id,
                step=self._watching.looks,
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

    # --- looking

    async def _look(self) -> Status:
        """What the server tells now, or told less than a second ago to somebody else of this console."""
        async with self._looking:
            now_s = time.monotonic()
            if self._status is None or now_s - self._looked_s >= PERIOD_S * 0.8:
                reading = await self._read_or_forget()
                self._looked_s = time.monotonic()
                self._status = self._watching.take(reading, self._looked_s, time.time())
            return self._status

    async def _read_or_forget(self) -> Reading:
        """What comes back after a failure may be another server, or another version of it."""
        try:
            return await self._read()
        except (httpx2.HTTPError, NotUnderstoodError):
            self._seldom.clear()
            self._adapter = self._given
            raise

    async def _read(self) -> Reading:
        if self._adapter is None:
            self._adapter = await recognise(self._asking)
        adapter = self._adapter
        given = await asyncio.gather(*(self._ask(path) for path in adapter.paths))
        answers = {answer.path: answer for answer in given}
        essential = [answers[path] for path in adapter.essential]
        for answer in given:
            if answer.status in (401, 403) and answer.path in adapter.essential:
                raise _Refusal(
                    Problem(
                        status=answer.status,
                        code="unauthorized",
                        title=f"{adapter.product} asks for a key",
                        detail="put it into INFER_CONSOLE_TOKEN",
                    )
                )
        loading = adapter.product == "llama.cpp" and answers["/health"].status == 503
        if not loading and not any(answer.told for answer in essential):
            words = ", ".join(f"{answer.path} answers {answer.status}" for answer in essential)
            raise NotUnderstoodError(f"this does not look like {adapter.product}: {words}")
        return await asyncio.to_thread(read, adapter, answers)

    async def _ask(self, path: str) -> Answer:
        kept = self._seldom.get(path)
        if kept is not None and time.monotonic() - kept[0] < SELDOM_S:
            return kept[1]
        answer = await self._asking.get(path)
        if path in SELDOM and (answer.told or not answer.offered):
            self._seldom[path] = (time.monotonic(), answer)
        return answer


class _Messages(httpx2.AsyncByteStream):
    def __init__(self, envelopes: AsyncIterator[Envelope]) -> None:
        self._envelopes = envelopes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for envelope in self._envelopes:
                head = f"id: {envelope.epoch}:{envelope.seq}\ndata: ".encode()
                yield head + msgspec.json.encode(envelope) + b"\n\n"
        except (NotUnderstoodError, _Refusal) as error:
            # As a broken connection it is tried again, with the reason on the screen.
            raise httpx2.ReadError(str(error)) from error
        except httpx2.TimeoutException as error:
            raise httpx2.ReadError("no answer in time") from error


class _Refusal(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.title)
        self.problem = problem


def _watched_only() -> _Refusal:
    title = "This server can only be watched"
    return _Refusal(Problem(status=501, code="watched_only", title=title))


def _document(request: httpx2.Request, document: msgspec.Struct, status: int = 200) -> httpx2.Response:
    return httpx2.Response(
        status, headers={"content-type": _JSON}, content=msgspec.json.encode(document), request=request
    )
