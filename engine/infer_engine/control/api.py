"""The control API: what operators call. One table says every route, who may call it and what answers."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from infer_engine.control.commands import Commands
from infer_engine.control.context import Context
from infer_engine.control.guard import Guard
from infer_engine.control.past import Past
from infer_engine.control.problems import problem_response
from infer_engine.control.reads import Reads
from infer_engine.control.routes import ControlRoute, RoleOf, to_starlette
from infer_engine.fleet.generation import refuse

PREFIX = "/control/v1"


def control_routes(context: Context) -> list[ControlRoute]:
    reads, past, commands = Reads(context), Past(context), Commands(context)
    return [
        ControlRoute("GET", f"{PREFIX}/hello", "viewer", reads.hello),
        ControlRoute("GET", f"{PREFIX}/state", "viewer", reads.state),
        ControlRoute("GET", f"{PREFIX}/requests", "viewer", reads.requests),
        ControlRoute("POST", f"{PREFIX}/requests/{{id}}:cancel", "operator", commands.cancel),
        ControlRoute("GET", f"{PREFIX}/requests/{{id}}", "viewer", reads.request),
        ControlRoute("GET", f"{PREFIX}/requests/{{id}}/timeline", "viewer", reads.timeline),
        ControlRoute("GET", f"{PREFIX}/history", "viewer", past.history),
        ControlRoute("GET", f"{PREFIX}/recorder", "viewer", past.recorder),
        ControlRoute("GET", f"{PREFIX}/replicas/{{id}}/blocks", "viewer", reads.blocks),
        ControlRoute("POST", f"{PREFIX}/replicas/{{id}}:drain", "operator", commands.drain),
        ControlRoute("POST", f"{PREFIX}/replicas/{{id}}:undrain", "operator", commands.undrain),
        ControlRoute("GET", f"{PREFIX}/events", "viewer", reads.events),
        ControlRoute("GET", f"{PREFIX}/operations", "viewer", reads.operations),
        ControlRoute("GET", f"{PREFIX}/operations/{{id}}", "viewer", reads.operation),
        ControlRoute("GET", f"{PREFIX}/watch", "viewer", reads.watch),
        ControlRoute("GET", f"{PREFIX}/tokens", "content", reads.tokens),
        ControlRoute("GET", f"{PREFIX}/limits", "viewer", reads.limits),
        ControlRoute("POST", f"{PREFIX}/limits", "operator", commands.limits),
        ControlRoute("GET", f"{PREFIX}/tenants", "viewer", reads.tenants),
        ControlRoute("POST", f"{PREFIX}/tenants/{{name}}", "operator", commands.tenant),
        ControlRoute("POST", f"{PREFIX}/headroom", "operator", commands.headroom),
        ControlRoute("POST", f"{PREFIX}/injections", "operator", commands.inject),
        ControlRoute("DELETE", f"{PREFIX}/injections", "operator", commands.stop_injection),
    ]


def build_control(context: Context, role_of: RoleOf) -> Starlette:
    """The ASGI application. ``role_of`` says what a caller may do; who is nobody is denied everything."""
    app = Starlette(
        routes=to_starlette(control_routes(context), role_of),
        middleware=[Middleware(Guard)],
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
