"""The one way by which every command goes: decoded, told from one that was sent before, checked against the
version it is for, written down, done, written down again, answered."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from infer_engine.control.audit import Audit, AuditUnavailableError
from infer_engine.control.decode import decode
from infer_engine.control.denials import ACCOUNTED
from infer_engine.control.guard import MAX_BODY_BYTES, read_body
from infer_engine.control.idempotency import Answer, Idempotency, check_key, fingerprint
from infer_engine.control.leases import Leases
from infer_engine.control.principal import attributed, principal_of
from infer_engine.control.problems import echo, json_response, problem_response
from infer_engine.control.records import Account
from infer_engine.control.versions import Versions
from infer_engine.fleet.generation import Refusal, refuse
from infer_engine.protocol import Command, CommandResult, Lease, LeaseCommand

log = logging.getLogger(__name__)

#: How long a command waits for those before it that change specs, too.
TURN_TIMEOUT_S = 60.0
REPLAYED = "idempotency-replayed"
#: How the caller is called where it is not known who that is.
NOBODY = "-"

B = TypeVar("B", bound=Command | LeaseCommand)
#: The path's parameters.
Path = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation(Generic[B]):
    """A command's route through the pipeline. ``apply`` gets the checked command; for a dry run it predicts
    and changes nothing. It raises Refusal before it changed anything, or not at all."""

    verb: str
    body: type[B]
    #: What it is done to, for the audit: kind and id.
    target: Callable[[Path, B], tuple[str, str]]
    apply: Callable[[Request, B], Awaitable[CommandResult | Lease]]
    #: Which spec it changes, as ``Versions`` knows it; None where it changes none.
    changes: Callable[[Path, B], str] | None = None
    #: It has to say which version of the spec it is for.
    needs_version: bool = False
    #: Done even if it cannot be written down: it takes load off, or stops something.
    reduces_risk: bool = False
    #: It changes the whole fleet: not while somebody else holds the lease.
    fleet_wide: Callable[[B], bool] = lambda _: False
    #: Its body may be so long.
    most_bytes: int = MAX_BODY_BYTES


@dataclass(slots=True, kw_only=True)
class Pipeline:
    audit: Audit
    keys: Idempotency
    leases: Leases
    versions: Versions
    #: Returns when all changes of specs are on the disk; Refusal (503) where they cannot be written.
    saved: Callable[[], Awaitable[None]]
    #: The thing that a version is of, for whoever has an old one.
    current: Callable[[str], dict[str, Any] | None]
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def handler(self, mutation: Mutation[Any]) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            return await _Attempt(self, mutation, request).answer()

        return handle


class _Attempt(Generic[B]):
    """One request's way through."""

    def __init__(self, pipeline: Pipeline, mutation: Mutation[B], request: Request) -> None:
        self._pipeline = pipeline
        self._mutation = mutation
        self._request = request
        self._account = Account(request, mutation.verb)
        principal = principal_of(request.scope)
        self._principal = principal.subject if principal else NOBODY
        self._key: str | None = None
        self._asks_only = False

    async def answer(self) -> Response:
        """The command's answer, its refusal written down; what was neither, goes on up. A dry run is a
        question and not written down, whatever its answer; who had no right to ask did not come this far."""
        self._request.scope[ACCOUNTED] = True
        try:
            command, replayed = await self._understood()
            if replayed is not None:
                return await self._replay(replayed)
            return await self._once(command)
        except Refusal as refusal:
            if not self._asks_only:
                await self._pipeline.audit.note(self._account.refused(refusal.problem))
            return problem_response(refusal)

    async def _understood(self) -> tuple[B, Answer | None]:
        """The command, and what it answered when it was sent before. After this, its key is taken."""
        request, mutation = self._request, self._mutation
        key = check_key(request.headers.get("idempotency-key"))
        self._account.of_key(key)
        body = await read_body(request, mutation.most_bytes)
        command = decode(mutation.body, body)
        # The actor is whom the server knows, with what the caller claims beside it.
        command = structs.replace(command, actor=attributed(request.scope, command.actor))
        self._asks_only = command.dry_run
        self._account.of_command(command)
        self._account.of_target(*mutation.target(request.path_params, command))
        if key is None or command.dry_run:
            return command, None
        print_ = fingerprint(request.method, request.url.path, request.url.query, body)
        found = self._pipeline.keys.begin(self._principal, key, print_)
        if found is None:
            self._key = key
        return command, found

    async def _replay(self, answer: Answer) -> Response:
        await self._pipeline.audit.note(self._account.record("completed", answer.status, "replayed"))
        headers = {**dict(answer.headers), REPLAYED: "true"}
        return Response(answer.body, answer.status, headers, media_type=answer.media_type)

    async def _once(self, command: B) -> Response:
        """Do it, and remember the answer under the command's key, a refusal too."""
        response: Response | None = None
        try:
            response = await self._checked(command)
            return response
        except Refusal as refusal:
            response = problem_response(refusal)
            raise
        finally:
            if self._key is not None:
                self._pipeline.keys.end(self._principal, self._key, _kept(response))

    async def _checked(self, command: B) -> Response:
        self._pipeline.leases.check(
            self._request.headers.get("lease-token"),
            self._mutation.fleet_wide(command) and not command.dry_run,
        )
        spec = self._mutation.changes(self._request.path_params, command) if self._mutation.changes else None
        if command.dry_run:
            self._match(spec, required=False)
            result = await self._mutation.apply(self._request, command)
            return self._document(self._forewarned(result, command), spec)
        if not self._mutation.needs_version:
            return await self._done(command, spec)
        # One change of specs after another: between its version's check and its end there is no other.
        await self._take_turn()
        try:
            return await self._done(command, spec)
        finally:
            self._pipeline.turn.release()

    def _forewarned(self, result: CommandResult | Lease, command: B) -> CommandResult | Lease:
        """A dry run of what somebody else's lease forbids says so."""
        if not (isinstance(result, CommandResult) and self._mutation.fleet_wide(command)):
            return result
        warning = self._pipeline.leases.warning(self._request.headers.get("lease-token"))
        if warning is None:
            return result
        effect = structs.replace(result.effect, warnings=[*result.effect.warnings, warning])
        return structs.replace(result, effect=effect)

    async def _take_turn(self) -> None:
        try:
            async with asyncio.timeout(TURN_TIMEOUT_S):
                await self._pipeline.turn.acquire()
        except TimeoutError as error:
            raise refuse(503, "busy", "Another change takes too long.", "Nothing was changed.") from error

    async def _done(self, command: B, spec: str | None) -> Response:
        mutation, account = self._mutation, self._account
        before = self._match(spec, required=mutation.needs_version)
        account.of_version(before)
        written = await self._write(account.record("received"), "received")
        self._match(spec, required=mutation.needs_version)  # a drain does not wait for its turn
        self._pipeline.leases.check(self._request.headers.get("lease-token"), mutation.fleet_wide(command))
        try:
            result = await mutation.apply(self._request, command)
        except Refusal:
            raise
        except BaseException:
            await self._tell_panic()
            raise
        if spec is not None:
            await self._pipeline.saved()
        account.of_version(before, self._version(spec))
        account.of_result(result)
        warnings = [] if written else [NOT_WRITTEN]
        if not await self._write(account.record("completed", 200, "ok"), "completed"):
            warnings = [NOT_WRITTEN]
        if warnings and isinstance(result, CommandResult):
            result = structs.replace(result, warnings=[*result.warnings, *warnings])
        return self._document(result, spec)

    async def _write(self, record: dict[str, Any], stage: str) -> bool:
        """Whether it is on the disk. Refusal (503) when that is the condition."""
        try:
            await self._pipeline.audit.record(record)
        except AuditUnavailableError as error:
            if stage == "received" and not self._mutation.reduces_risk:
                raise refuse(
                    503,
                    "audit_unavailable",
                    "The audit cannot be written, so nothing was changed.",
                    f"{error}. Drain, fence, cancel and stopping test traffic go on.",
                ) from error
            log.error("%s is %s without its record in the audit: %s", self._mutation.verb, stage, error)
            return False
        return True

    async def _tell_panic(self) -> None:
        try:
            await self._pipeline.audit.record(self._account.record("panic", 500, "internal_error"))
        except AuditUnavailableError as error:
            log.error("%s failed without its record in the audit: %s", self._mutation.verb, error)

    def _version(self, spec: str | None) -> str | None:
        return None if spec is None else self._pipeline.versions.version(spec)

    def _match(self, spec: str | None, *, required: bool) -> str | None:
        """The version that ``If-Match`` names, too. Refusal: 428 without one where it is required, 412 for an
        old one. A thing that does not exist has none: its command says so."""
        now = self._version(spec)
        given = self._request.headers.get("if-match")
        if spec is None or now is None:
            return now
        if given is None:
            if required:
                raise refuse(
                    428,
                    "version_required",
                    "Say which version this change is for.",
                    "Send If-Match with the resource_version that a dry run of the command tells.",
                    field="if-match",
                )
            return now
        if given.strip() != f'"{now}"' and given.strip() != "*":
            stale = refuse(
                412,
                "stale_version",
                "Somebody changed it since.",
                f"If-Match was {echo(given)}, the version is now {echo(now)}.",
                field="if-match",
            )
            stale.problem = structs.replace(
                stale.problem, current=self._pipeline.current(spec), resource_version=now
            )
            raise stale
        return now

    def _document(self, result: CommandResult | Lease, spec: str | None) -> Response:
        version = self._version(spec)
        if isinstance(result, CommandResult):
            result = structs.replace(result, resource_version=version)
        response = json_response(result)
        if version is not None:
            response.headers["etag"] = f'"{version}"'
        return response


NOT_WRITTEN = "it is done, but not written down: the audit cannot be written"


def _kept(response: Response | None) -> Answer | None:
    """None for what was neither answered nor refused."""
    if response is None:
        return None
    kept = tuple(
        (name, value) for name, value in response.headers.items() if name in ("etag", "cache-control")
    )
    return Answer(response.status_code, bytes(response.body), kept, response.media_type or "application/json")
