"""The control API: what operators call. One table says every route, who may call it and what answers."""

from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from infer_engine.control.authentication import Authenticated, Authenticator
from infer_engine.control.commands import Commands
from infer_engine.control.context import Context
from infer_engine.control.guard import Guard
from infer_engine.control.problems import problem_response
from infer_engine.control.reads import Reads
from infer_engine.control.replica_commands import ReplicaCommands, durable
from infer_engine.control.routes import ControlRoute, Handler, RoleOf, role_of_principal, to_starlette
from infer_engine.control.sessions import Sessions
from infer_engine.fleet.generation import refuse

PREFIX = "/control/v1"


def control_routes(context: Context) -> list[ControlRoute]:
    reads, commands, replicas = Reads(context), Commands(context), ReplicaCommands(context)

    def kept(handler: Handler) -> Handler:
        return durable(context, handler)

    return [
        ControlRoute("GET", f"{PREFIX}/hello", "viewer", reads.hello),
        ControlRoute("GET", f"{PREFIX}/state", "viewer", reads.state),
        ControlRoute("GET", f"{PREFIX}/requests", "viewer", reads.requests),
        ControlRoute("POST", f"{PREFIX}/requests/{{id}}:cancel", "operator", commands.cancel),
        ControlRoute("GET", f"{PREFIX}/requests/{{id}}", "viewer", reads.request),
        ControlRoute("GET", f"{PREFIX}/replicas/{{id}}/blocks", "viewer", reads.blocks),
        ControlRoute("POST", f"{PREFIX}/replicas/{{id}}:drain", "operator", kept(commands.drain)),
        ControlRoute("POST", f"{PREFIX}/replicas/{{id}}:undrain", "operator", kept(commands.undrain)),
        ControlRoute("POST", f"{PREFIX}/replicas/{{id}}:fence", "operator", kept(replicas.fence)),
        ControlRoute("POST", f"{PREFIX}/replicas/{{id}}:release", "operator", kept(replicas.release)),
        ControlRoute("POST", f"{PREFIX}/replicas/{{id}}:restart", "operator", kept(replicas.restart)),
        ControlRoute("POST", f"{PREFIX}/scale", "operator", kept(replicas.scale)),
        ControlRoute("POST", f"{PREFIX}/shed", "operator", kept(replicas.shed)),
        ControlRoute("GET", f"{PREFIX}/events", "viewer", reads.events),
        ControlRoute("GET", f"{PREFIX}/operations", "viewer", reads.operations),
        ControlRoute("GET", f"{PREFIX}/operations/{{id}}", "viewer", reads.operation),
        ControlRoute("GET", f"{PREFIX}/watch", "viewer", reads.watch),
        ControlRoute("GET", f"{PREFIX}/tokens", "content", reads.tokens),
        ControlRoute("GET", f"{PREFIX}/limits", "viewer", reads.limits),
        ControlRoute("POST", f"{PREFIX}/limits", "operator", kept(commands.limits)),
        ControlRoute("GET", f"{PREFIX}/tenants", "viewer", reads.tenants),
        ControlRoute("POST", f"{PREFIX}/tenants/{{name}}", "operator", kept(commands.tenant)),
        ControlRoute("POST", f"{PREFIX}/headroom", "operator", kept(commands.headroom)),
        ControlRoute("POST", f"{PREFIX}/injections", "operator", commands.inject),
        ControlRoute("DELETE", f"{PREFIX}/injections", "operator", commands.stop_injection),
    ]


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
    middleware = [Middleware(Guard, names=tuple(names), methods={route.method for route in routes})]
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
