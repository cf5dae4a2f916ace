"""Attempts that never came to a command: whoever was turned away at a door, or had no right to what is behind
it, is in the audit before they are answered."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infer_engine.control.audit import Audit
from infer_engine.control.records import Account

DENIED = frozenset({401, 403, 421})
#: Set in a request's scope by whoever writes it down themselves.
ACCOUNTED = "infer_engine.accounted"


class Denials:
    """Outermost: it sees what every other part answers."""

    def __init__(self, app: ASGIApp, audit: Audit) -> None:
        self._app = app
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        held: list[Message] = []

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in DENIED:
                if not scope.get(ACCOUNTED):
                    held.append(message)
                    return
            elif held:
                await self._tell(scope, held[0]["status"], message.get("body", b""))
                await send(held.pop())
            await send(message)

        await self._app(scope, receive, watch)

    async def _tell(self, scope: Scope, status: int, body: bytes) -> None:
        request = Request(scope)
        await self._audit.note(
            Account(request, f"{request.method.lower()} {_route(scope)}").record(
                "completed", status, _code(body)
            )
        )


def _route(scope: Scope) -> str:
    route: Any = scope.get("route")
    path: Any = getattr(route, "path", None)
    return path if isinstance(path, str) else "?"


def _code(body: bytes) -> str | None:
    try:
        problem: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    code = problem.get("code") if isinstance(problem, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return code if isinstance(code, str) else None
