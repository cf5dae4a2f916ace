"""What every request passes before its route: only local tools may speak here, never a browser, and never at
length."""

import asyncio

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
    """Refuses unknown ``Host`` values (421) and everything that comes from a web page (403). An allow-list: a
    method or header that nobody thought of is not let through by a rule that forgot it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = _refusal(Request(scope))
        if refusal is not None:
            await problem_response(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _refusal(request: Request) -> Refusal | None:
    host = request.headers.get("host", "")
    if _hostname(host) not in ALLOWED_HOSTS:
        return refuse(421, "host_not_allowed", "This host name is not served here.", f"Host was {echo(host)}")
    if "origin" in request.headers:
        return refuse(403, "origin_not_allowed", "The control API takes no requests from web pages.")
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return refuse(403, "origin_not_allowed", "The control API takes no requests from web pages.")
    return None


def _hostname(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() and not host.endswith("]") else host).lower()


async def read_body(request: Request) -> bytes:
    """The whole body; Refusal when it is too long, too slow, encoded or not declared as JSON."""
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
                if len(body) > MAX_BODY_BYTES:
                    raise refuse(
                        413,
                        "body_too_large",
                        "The body is too large.",
                        f"At most {MAX_BODY_BYTES} bytes are allowed.",
                        numbers={"allowed_bytes": MAX_BODY_BYTES},
                    )
    except TimeoutError as error:
        raise refuse(408, "body_too_slow", "The body did not arrive in time.") from error
    except ClientDisconnect as error:
        raise refuse(499, "client_gone", "The client went away.") from error
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and content_type != "application/json":
        raise refuse(
            415,
            "not_json",
            "Commands are JSON.",
            f"Content-Type was {echo(content_type)}, not 'application/json'.",
        )
    return bytes(body)
