"""What every request passes before its route: only tools may speak here, under a name that is served, never
a browser, and never at length."""

import asyncio
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from infer_engine.control.problems import echo, problem_response
from infer_engine.fleet.generation import Refusal, refuse

#: Names by which a client may call the server. A unix socket has none, so clients make one up.
ALLOWED_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "infer-console", "infer-engine"})
MAX_BODY_BYTES = 64 * 1024
#: How long a client may take to send a body.
BODY_DEADLINE_S = 10.0


class Guard:
    """Refuses unknown ``Host`` values (421), everything that comes from a web page (403), and methods
    that no route has (405). Allow-lists: what nobody thought of is not let through by a rule that forgot it.
    ``names`` are host names beside those of this machine; no ``Origin`` is on any list, since no page is
    served."""

    def __init__(self, app: ASGIApp, names: Iterable[str] = (), methods: Iterable[str] = ("GET",)) -> None:
        self._app = app
        self._hosts = ALLOWED_HOSTS | {name.lower() for name in names}
        self._methods = frozenset(methods)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(Headers(scope=scope), scope["method"])
        if refusal is None:
            await self._app(scope, receive, send)
            return
        response = problem_response(refusal)
        if refusal.problem.status == 405:
            response.headers["allow"] = ", ".join(sorted(self._methods))
        await response(scope, receive, send)

    def _refusal(self, headers: Headers, method: str) -> Refusal | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _hostname(hosts[0]) not in self._hosts:
            shown = echo(", ".join(hosts))
            return refuse(421, "host_not_allowed", "This host name is not served here.", f"Host was {shown}")
        sites = headers.getlist("sec-fetch-site")
        if "origin" in headers or any(site not in ("none", "same-origin") for site in sites):
            return refuse(403, "origin_not_allowed", "The control API takes no requests from web pages.")
        if method not in self._methods:
            return refuse(405, "method_not_allowed", "This path does not take that method.")
        return None


def require_json(request: Request) -> None:
    """Refusal (415) unless a command is declared as JSON, which no form of a web page can do unasked."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        raise refuse(
            415,
            "not_json",
            "Commands are JSON.",
            f"Content-Type was {echo(given)}, not 'application/json'.",
        )


def _hostname(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() and not host.endswith("]") else host).lower()


async def read_body(request: Request, most_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The whole body; Refusal when it is too long, too slow or encoded."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise refuse(
            415,
            "encoding_not_supported",
            "Bodies are taken as they are.",
            f"Content-Encoding was {echo(encoding)}, not 'identity'.",
        )
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most_bytes:
                    raise refuse(
                        413,
                        "body_too_large",
                        "The body is too large.",
                        f"At most {most_bytes} bytes are allowed.",
                        numbers={"allowed_bytes": most_bytes},
                    )
    except TimeoutError as error:
        raise refuse(408, "body_too_slow", "The body did not arrive in time.") from error
    except ClientDisconnect as error:
        raise refuse(499, "client_gone", "The client went away.") from error
    return bytes(body)
