"""The control API: what operators call. One table says every route, who may call it and what answers."""

from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from infer_engine.control.authentication import Authenticated, Authenticator
from infer_engine.control.changes import Changes
from infer_engine.control.commands import Commands
from infer_engine.control.context import Context
from infer_engine.control.denials import Denials
from infer_engine.control.guard import Guard
from infer_engine.control.mutation import Mutation, Pipeline
from infer_engine.control.past import Past
from infer_engine.control.problems import problem_response
from infer_engine.control.queries import AUDIT, EVENTS, HISTORY, RECORDER, REQUESTS, TOKENIZE, TOKENS, WATCH
from infer_engine.control.reads import Reads, tenant_status
from infer_engine.control.replica_commands import ReplicaCommands
from infer_engine.control.routes import ControlRoute, RoleOf, role_of_principal, to_starlette
from infer_engine.control.sessions import Sessions
from infer_engine.control.tokenizing import Tokenizing
from infer_engine.control.versions import REPLICAS
from infer_engine.fleet.generation import refuse
from infer_engine.protocol import (
    AuditPage,
    Blocks,
    CommandResult,
    Envelope,
    Events,
    Hello,
    History,
    Lease,
    Leases,
    LiveLimits,
    Operation,
    Operations,
    Replica,
    RequestRow,
    Requests,
    Status,
    Tenants,
    TenantStatus,
    Timeline,
    TokenDelta,
    Tokenized,
)

PREFIX = "/control/v1"


def control_routes(context: Context) -> list[ControlRoute]:
    return [*_reads(context), *_commands(context)]


def _reads(context: Context) -> list[ControlRoute]:
    reads, past, tokenizing = Reads(context), Past(context), Tokenizing(context)

    def read(path: str, handler: Any, says: str, answer: Any, **more: Any) -> ControlRoute:
        permission = more.pop("permission", "viewer")
        return ControlRoute("GET", f"{PREFIX}{path}", permission, handler, says, answer, **more)

    return [
        read("/hello", reads.hello, "versions, capabilities, the fleet", Hello),
        read("/state", reads.state, "the fleet and its replicas", Status),
        read("/requests", reads.requests, "who runs and who waits, and why", Requests, query=REQUESTS),
        read("/requests/{id}", reads.request, "one request", RequestRow),
        read("/requests/{id}/timeline", reads.timeline, "what happened to a request, and when", Timeline),
        read("/history", past.history, "the figures of the last hour", History, query=HISTORY),
        read("/recorder", past.recorder, "what the flight recorder kept", bytes, query=RECORDER, stream=True),
        read("/replicas/{id}", reads.replica, "one replica; its version as ETag", Replica),
        read("/replicas/{id}/blocks", reads.blocks, "a replica's KV block map", Blocks),
        read("/events", reads.events, "what happened, oldest first", Events, query=EVENTS),
        read("/operations", reads.operations, "commands under way and done, newest first", Operations),
        read("/operations/{id}", reads.operation, "one operation", Operation),
        read("/watch", reads.watch, "the watch stream", Envelope, query=WATCH, stream=True),
        read(
            "/tokens",
            reads.tokens,
            "generated text as it comes",
            TokenDelta,
            query=TOKENS,
            stream=True,
            permission="content",
        ),
        read(
            "/token-times",
            reads.token_times,
            "when generated tokens come, without their text",
            TokenDelta,
            query=TOKENS,
            stream=True,
        ),
        read("/tokenize", tokenizing.tokenize, "a sentence as tokens", Tokenized, query=TOKENIZE),
        read("/limits", reads.limits, "live limits by replica; the version of all as ETag", LiveLimits),
        read("/tenants", reads.tenants, "what tenants use and may use", Tenants),
        read("/tenants/{name}", reads.tenant, "one tenant; its version as ETag", TenantStatus),
        read("/leases", reads.leases, "who holds the lease on the fleet", Leases),
        read("/audit", reads.audit, "records of the audit", AuditPage, query=AUDIT, permission="operator"),
    ]


def _commands(context: Context) -> list[ControlRoute]:
    pipeline, changes = _pipeline(context), Changes(Commands(context), ReplicaCommands(context))

    def command(
        method: Any, path: str, mutation: Mutation[Any], says: str, answer: Any = CommandResult
    ) -> ControlRoute:
        return ControlRoute(
            method,
            f"{PREFIX}{path}",
            "operator",
            pipeline.handler(mutation),
            says,
            answer,
            body=mutation.body,
            changes=mutation.needs_version,
        )

    return [
        command("POST", "/requests:cancel", changes.cancel_where, "cancel a selection of requests"),
        command("POST", "/requests/{id}:cancel", changes.cancel, "cancel one request"),
        command("POST", "/requests/{id}:preempt", changes.preempt, "preempt one request, or move it"),
        command("POST", "/replicas/{id}:drain", changes.drain, "take a replica out of service"),
        command("POST", "/replicas/{id}:undrain", changes.undrain, "take a replica back"),
        command("POST", "/replicas/{id}:fence", changes.fence, "take a bad replica out, now and for good"),
        command("POST", "/replicas/{id}:release", changes.release, "let a fenced replica start again"),
        command("POST", "/replicas/{id}:restart", changes.restart, "end a replica and start it again"),
        command("POST", "/scale", changes.scale, "change how many replicas there are"),
        command("POST", "/shed", changes.shed, "pause the batch tier, or let it go on"),
        command("POST", "/limits", changes.limits, "change live limits"),
        command("POST", "/tenants/{name}", changes.tenant, "change what a tenant may use"),
        command("POST", "/headroom", changes.headroom, "move an admission mark"),
        command("POST", "/injections", changes.inject, "send test traffic"),
        command("DELETE", "/injections", changes.stop_injection, "stop test traffic"),
        command("POST", "/leases", changes.acquire_lease, "take the lease on the fleet", Lease),
        command("POST", "/leases/{id}:renew", changes.renew_lease, "hold it for 30 s more", Lease),
        command("DELETE", "/leases/{id}", changes.release_lease, "give it back", Lease),
    ]


def _pipeline(context: Context) -> Pipeline:
    def current(target: str) -> dict[str, Any] | None:
        kind, _, name = target.partition(":")
        if kind == "replica":
            return msgspec.to_builtins(context.fleet.replica(name))
        if kind == "tenant":
            return msgspec.to_builtins(tenant_status(context.fleet, name))
        if kind == "fleet":
            return msgspec.to_builtins(context.status().fleet)
        return msgspec.to_builtins(context.fleet.limits.now()) if target == REPLICAS else None

    return Pipeline(
        audit=context.audit,
        keys=context.keys,
        leases=context.leases,
        versions=context.versions(),
        saved=context.fleet.specs.saved,
        current=current,
    )


def build_control(
    context: Context,
    role_of: RoleOf = role_of_principal,
    *,
    authenticator: Authenticator | None = None,
    sessions: Sessions | None = None,
    names: Iterable[str] = (),
) -> Starlette:
    """The ASGI application. ``role_of`` says what a caller may do; who is nobody is denied everything.
    ``authenticator`` says who a caller is, before any route is looked at; ``names`` are host names by which
    the server may be called from other machines."""
    routes = control_routes(context)
    # Outermost: what never reaches a route is written down too.
    middleware = [Middleware(Denials, audit=context.audit)]
    middleware += [Middleware(Guard, names=tuple(names), methods={route.method for route in routes})]
    if authenticator is not None:
        middleware.append(
            Middleware(
                Authenticated,
                authenticator=authenticator,
                sessions=Sessions() if sessions is None else sessions,
            )
        )
    app = Starlette(
        routes=to_starlette(routes, role_of),
        middleware=middleware,
        exception_handlers={HTTPException: _no_route, Exception: _our_fault},
    )
    app.router.redirect_slashes = False
    return app


async def _no_route(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    if status == 405:
        response = problem_response(refuse(405, "method_not_allowed", "This path does not take that method."))
    else:
        response = problem_response(refuse(status, "not_found", "There is nothing at this path."))
    response.headers.update(headers or {})
    return response


async def _our_fault(_request: Request, _error: Exception) -> Response:
    """The traceback goes to the log; the client learns only that there was one."""
    return problem_response(refuse(500, "internal_error", "The server failed to answer. Its log says why."))
