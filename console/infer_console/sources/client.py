"""An engine server's control API, one method per route."""

import asyncio
import getpass
import os
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import httpx2
import msgspec
from infer_engine.protocol import (
    AcquireLease,
    AuditPage,
    Blocks,
    Command,
    CommandResult,
    Events,
    Hello,
    History,
    Lease,
    LeaseCommand,
    Leases,
    LiveLimits,
    Operation,
    Operations,
    ReleaseLease,
    RenewLease,
    RequestRow,
    Requests,
    Status,
    Tenants,
    Timeline,
    Tokenized,
)

from infer_console.connect import Target
from infer_console.credentials import LEASE_VARIABLE
from infer_console.sources.failures import (
    CONNECT_TIMEOUT_S,
    NotUnderstoodError,
    RefusedError,
    UnreachableError,
    why,
)
from infer_console.sources.refusal import problem_of
from infer_console.sources.routes import (
    PREFIX,
    command_route,
    needs_version,
    operation_path,
    replica_path,
    request_path,
)
from infer_console.sources.transport import authorization, transport
from infer_console.state.server_clock import AGREE_S

HEARTBEAT_S = 2.0
#: A stream that is silent for three heartbeats is broken.
SILENCE_S = 3 * HEARTBEAT_S
ANSWER_TIMEOUT_S = 15.0
#: A whole document takes that long at most, however steadily it drips.
DOCUMENT_TIMEOUT_S = 60.0
#: How often a command is sent whose answer did not come, and how long after the last time.
MOST_ATTEMPTS = 3
RETRY_AFTER_S = 0.2
MAX_EVENT_BYTES = 8 * 1024 * 1024
#: A document beyond this is not read to its end.
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024

T = TypeVar("T")


class EngineClient:
    """Use as ``async with``. Every method raises UnreachableError, RefusedError or NotUnderstoodError,
    nothing else of the network's."""

    def __init__(self, target: Target) -> None:
        self.target = target
        # No proxy from the environment: one that buffers would hold the watch stream back.
        self._http = httpx2.AsyncClient(
            base_url=target.base_url,
            transport=transport(target),
            timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S),
            headers={"accept": "application/json", **authorization(target)},
            trust_env=False,
        )
        #: What the server's clock shows more than ours, as its last answer was dated.
        self._ahead_s: float | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def now(self) -> float:
        """Unix seconds of the server's clock, to a second, where it differs from ours; else ours."""
        if self._ahead_s is None:
            await self.hello()
        return time.time() + (self._ahead_s or 0.0)

    # --- looking

    async def hello(self) -> Hello:
        return await self._get(f"{PREFIX}/hello", Hello)

    async def state(self) -> Status:
        return await self._get(f"{PREFIX}/state", Status)

    async def requests(
        self,
        state: str | None = None,
        replica: str | None = None,
        limit: int | None = None,
        ended_after: float | None = None,
    ) -> Requests:
        """With ``limit`` the oldest of them, and how many more there are; with ``ended_after`` (Unix seconds)
        also those that finished since, as far as the server is new enough to tell."""
        return await self._get(
            f"{PREFIX}/requests",
            Requests,
            state=state,
            replica=replica,
            limit=None if limit is None else str(limit),
            ended_after=None if ended_after is None else repr(ended_after),
        )

    async def request(self, request: str) -> RequestRow:
        return await self._get(request_path(request), RequestRow)

    async def timeline(self, request: str) -> Timeline:
        return await self._get(f"{request_path(request)}/timeline", Timeline)

    async def history(self, seconds: float, step_s: float) -> History:
        return await self._get(f"{PREFIX}/history", History, seconds=f"{seconds:g}", step=f"{step_s:g}")

    async def blocks(self, replica: str) -> Blocks:
        return await self._get(replica_path(replica, "blocks"), Blocks)

    async def events(self, limit: int) -> Events:
        return await self._get(f"{PREFIX}/events", Events, limit=str(limit))

    async def operations(self) -> Operations:
        return await self._get(f"{PREFIX}/operations", Operations)

    async def operation(self, operation: str) -> Operation:
        return await self._get(operation_path(operation), Operation)

    async def limits(self) -> LiveLimits:
        return await self._get(f"{PREFIX}/limits", LiveLimits)

    async def tenants(self) -> Tenants:
        return await self._get(f"{PREFIX}/tenants", Tenants)

    async def tokenize(self, text: str) -> Tokenized:
        """At most ``MOST_SENTENCE`` characters, by the tokenizer of the model that is served. What is no
        Unicode goes as ``?``."""
        unicode = text.encode("utf-8", "replace").decode()
        return await self._get(f"{PREFIX}/tokenize", Tokenized, text=unicode)

    # --- acting

    async def command(
        self, command: Command, target: str | None = None, version: str | None = None
    ) -> CommandResult:
        """Done once, however often it has to be sent: when the connection breaks half-way it is sent again
        under the same key. ``version`` is what the command is for (a dry run's ``resource_version``); where
        it is not given, what is there now, asked for just before. Who changed it in between is not
        overruled: RefusedError with 412."""
        if version is None and not command.dry_run and needs_version(command):
            dry = msgspec.structs.replace(command, dry_run=True)
            version = (await self._command(dry, target, None)).resource_version
        return await self._command(command, target, version)

    async def _command(self, command: Command, target: str | None, version: str | None) -> CommandResult:
        method, path = command_route(command, target)
        headers = {"content-type": "application/json", "idempotency-key": uuid.uuid4().hex}
        if lease := os.environ.get(LEASE_VARIABLE):
            headers["lease-token"] = lease
        if version is not None:
            headers["if-match"] = f'"{version}"'
        began_s = time.monotonic()
        for attempt in range(1, MOST_ATTEMPTS + 1):
            request = self._http.build_request(
                method, path, content=msgspec.json.encode(command), headers=headers
            )
            try:
                return await self._send(request, CommandResult)
            except UnreachableError as failure:
                late = time.monotonic() - began_s > ANSWER_TIMEOUT_S  # it is slow, not broken
                if attempt == MOST_ATTEMPTS or not failure.sent or late:
                    raise
            except RefusedError as refused:
                if attempt == MOST_ATTEMPTS or refused.problem.code != "in_progress":
                    raise
            await asyncio.sleep(RETRY_AFTER_S)
        raise AssertionError("unreachable")

    async def leases(self) -> Leases:
        return await self._get(f"{PREFIX}/leases", Leases)

    async def acquire_lease(self, purpose: str = "") -> Lease:
        """RefusedError (409) that says who holds it and for how long, where somebody does."""
        return await self._lease("POST", "", AcquireLease(purpose=purpose, actor=actor()))

    async def renew_lease(self, lease: str) -> Lease:
        return await self._lease("POST", f"/{quote(lease, safe='')}:renew", RenewLease(actor=actor()))

    async def release_lease(self, lease: str) -> Lease:
        return await self._lease("DELETE", f"/{quote(lease, safe='')}", ReleaseLease(actor=actor()))

    async def _lease(self, method: str, path: str, command: LeaseCommand) -> Lease:
        headers = {"content-type": "application/json", "idempotency-key": uuid.uuid4().hex}
        request = self._http.build_request(
            method, f"{PREFIX}/leases{path}", content=msgspec.json.encode(command), headers=headers
        )
        return await self._send(request, Lease)

    async def audit(self, **where: int) -> AuditPage:
        """Records by ``limit``, ``before``, ``after``."""
        return await self._get(
            f"{PREFIX}/audit", AuditPage, **{name: str(value) for name, value in where.items()}
        )

    # --- streams

    @asynccontextmanager
    async def watch(
        self, replicas: Sequence[str], detail: Sequence[str], hz: float, since: str | None = None
    ) -> AsyncGenerator["MessageStream"]:
        """The watch stream: ``protocol.Envelope`` as JSON text, one per message. Every replica's status
        comes, the parts in ``detail`` only for ``replicas``. ``since``: the id of the last message that came,
        to be sent what followed it (RefusedError 410 when that is not to be had)."""
        params = {"hz": f"{hz:g}", "detail": ""}
        if replicas and detail:
            params |= {"replicas": ",".join(replicas), "detail": ",".join(detail), "others": "status"}
        params["actor"] = actor()
        if since is not None:
            params["since"] = since
        async with self._stream(f"{PREFIX}/watch", params) as stream:
            yield stream

    async def recording(
        self, from_at: float | None, to_at: float | None, *, timelines_only: bool = False
    ) -> AsyncGenerator[bytes]:
        """What the server's flight recorder has of that span (Unix seconds): the bytes of a recording. A
        server without the capability ``timelines`` cannot leave the messages out."""
        given = {"from": from_at, "to": to_at}
        params = {name: f"{at:.3f}" for name, at in given.items() if at is not None}
        if timelines_only:
            params["parts"] = "timelines"
        timeout = httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S)
        try:
            async with self._http.stream(
                "GET", f"{PREFIX}/recorder", params=params, timeout=timeout
            ) as response:
                if response.status_code >= 300:
                    raise RefusedError(problem_of(response, await self._read(response), self.target.url))
                async for chunk in response.aiter_bytes():
                    yield chunk
        except httpx2.HTTPError as error:
            raise UnreachableError(self.target.url, why(error)) from error

    @asynccontextmanager
    async def tokens(
        self, requests: Sequence[str], *, content: bool = True
    ) -> AsyncGenerator["MessageStream"]:
        """The token tap: ``protocol.TokenDelta`` as JSON text, one per message. Without ``content`` only when
        tokens come, which needs no right to read them."""
        path = f"{PREFIX}/{'tokens' if content else 'token-times'}"
        async with self._stream(path, {"requests": ",".join(requests)}) as stream:
            yield stream

    @asynccontextmanager
    async def _stream(self, path: str, params: dict[str, str]) -> AsyncGenerator["MessageStream"]:
        timeout = httpx2.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S)
        try:
            async with self._http.sse(
                path, params=params, timeout=timeout, max_event_size=MAX_EVENT_BYTES
            ) as source:
                if source.response.status_code >= 400:
                    body = await self._read(source.response)
                    raise RefusedError(problem_of(source.response, body, self.target.url))
                yield MessageStream(source)
        except httpx2.ReadTimeout as error:
            raise UnreachableError(self.target.url, f"silent for {SILENCE_S:g} s") from error
        except httpx2.HTTPError as error:
            raise UnreachableError(self.target.url, why(error)) from error

    async def _get(self, path: str, answer: type[T], **params: str | None) -> T:
        given = {name: value for name, value in params.items() if value is not None}
        return await self._send(self._http.build_request("GET", path, params=given), answer)

    async def _send(self, request: httpx2.Request, answer: type[T]) -> T:
        try:
            async with asyncio.timeout(DOCUMENT_TIMEOUT_S):
                response = await self._http.send(request, stream=True)
                try:
                    self._note_date(response)
                    body = await self._read(response)
                finally:
                    await response.aclose()
        except TimeoutError as error:
            said = f"no whole answer in {DOCUMENT_TIMEOUT_S:g} s"
            raise UnreachableError(self.target.url, said, sent=True) from error
        except httpx2.HTTPError as error:
            sent = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
            raise UnreachableError(self.target.url, why(error), sent=sent) from error
        if response.status_code >= 300:
            raise RefusedError(problem_of(response, body, self.target.url))
        try:
            return msgspec.json.decode(body, type=answer)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise NotUnderstoodError(f"{self.target.url}: {request.url.path}: {error}") from error

    def _note_date(self, response: httpx2.Response) -> None:
        with suppress(ValueError):  # one that is no date, or is not there, tells nothing
            dated = parsedate_to_datetime(response.headers.get("date", ""))
            ahead_s = dated.timestamp() + 0.5 - time.time()
            self._ahead_s = ahead_s if abs(ahead_s) >= AGREE_S else 0.0

    async def _read(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_DOCUMENT_BYTES:
                raise NotUnderstoodError(
                    f"{self.target.url}: the answer is longer than {MAX_DOCUMENT_BYTES} bytes"
                )
        return bytes(body)


class MessageStream:
    """The messages of one SSE connection, and how many bytes it took to get them."""

    def __init__(self, source: httpx2.EventSource) -> None:
        self._source = source

    @property
    def bytes_received(self) -> int:
        return self._source.response.num_bytes_downloaded

    async def messages(self) -> AsyncGenerator[str]:
        async for message in self._source:
            yield message.data


def actor() -> str:
    """Who operates, as the audit will name them: the user's login, a claim."""
    try:
        return getpass.getuser()[:64]
    except (OSError, KeyError):
        return "unknown"
