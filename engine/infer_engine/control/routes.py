"""Who may call what. Rights belong to routes, never to paths, and a route without a permission cannot be
written."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from infer_engine.control.guard import require_json
from infer_engine.control.principal import principal_of
from infer_engine.control.problems import problem_response
from infer_engine.control.roles import ROLES as ROLES
from infer_engine.control.roles import may as may
from infer_engine.fleet.generation import Refusal, refuse
from infer_engine.protocol import Role as Role

#: What a handler returns is an ASGI application: a Response or a stream.
Handler = Callable[[Request], Awaitable[Response | ASGIApp]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query parameter, for whoever reads about it; its handler checks it."""

    name: str
    says: str
    #: JSON schema of its value.
    schema: dict[str, Any]
    required: bool = False


@dataclass(frozen=True, slots=True)
class ControlRoute:
    """``answer`` is the document of a 200, or the struct of each message where the answer is a stream;
    ``body`` what a command holds. ``changes``: the command needs ``If-Match``."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    permission: Role
    handler: Handler
    says: str
    answer: Any
    query: tuple[Query, ...] = ()
    body: Any = None
    changes: bool = False
    stream: bool = False


#: Says which role a caller has; None is nobody.
RoleOf = Callable[[Scope], Role | None]


def role_of_principal(scope: Scope) -> Role | None:
    """What whoever was authenticated may do."""
    principal = principal_of(scope)
    return None if principal is None else principal.role


def to_starlette(routes: Sequence[ControlRoute], role_of: RoleOf) -> list[Route]:
    """One Starlette route per path and method; HEAD is not served (a watch stream has no end to skip to)."""
    made: list[Route] = []
    for route in routes:
        starlette_route = Route(route.path, _Endpoint(route, role_of), methods=[route.method])
        starlette_route.methods = {route.method}
        made.append(starlette_route)
    return made


class _Endpoint:
    """Checks the permission, runs the handler, and turns a Refusal into its problem document."""

    def __init__(self, route: ControlRoute, role_of: RoleOf) -> None:
        self.route = route
        self._role_of = role_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response | ASGIApp
        try:
            if not may(self._role_of(scope), self.route.permission):
                raise refuse(403, "denied", f"This needs the role {self.route.permission}.")
            request = Request(scope, receive)
            if self.route.method != "GET":
                require_json(request)
            response = await self.route.handler(request)
        except Refusal as refusal:
            response = problem_response(refusal)
        await response(scope, receive, send)
