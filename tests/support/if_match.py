"""Commands of tests that only want them done: the version that they are for is asked for just before."""

import json
from collections.abc import Generator
from typing import Any

import httpx2

VERSIONED = (":undrain", ":release", "/scale", "/shed", "/headroom", "/limits")


class CurrentVersion(httpx2.Auth):
    """Sends a dry run first, and the command with the version that it told; what was refused already is not
    sent again."""

    requires_request_body = True  # of responses the head is enough: a stream's body has no end

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        body = _body(request)
        if body is None or body.get("dry_run") or "if-match" in request.headers:
            yield request
            return
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        headers["content-type"] = "application/json"
        dry = httpx2.Request(
            request.method, request.url, headers=headers, content=json.dumps({**body, "dry_run": True})
        )
        told = yield dry
        if told.status_code == 200:
            request.headers["if-match"] = told.headers["etag"]
            yield request


def _body(request: httpx2.Request) -> dict[str, Any] | None:
    """None for what changes no spec, or is no command at all."""
    path = request.url.path
    if request.method != "POST" or not (path.endswith(VERSIONED) or "/tenants/" in path):
        return None
    if request.content and "json" not in request.headers.get("content-type", ""):
        return None
    try:
        body = json.loads(request.content or b"{}")
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None
