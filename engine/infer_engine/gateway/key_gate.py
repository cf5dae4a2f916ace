"""Nobody passes without a key: in front of all routes but those that are open to everyone.

What is open is decided by matching the open routes themselves, which then answer: no path is looked at twice,
so there is nothing on which two readers of it could disagree. All else, what does not exist included, is for
those who have a key.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from infer_engine.gateway.errors import ApiError
from infer_engine.gateway.keys import ApiKey, Keyring

#: Where a request's key is in its scope.
SCOPE_KEY = "infer.api_key"
#: Wrong keys of one client address within a minute, after which it is told to wait; the addresses known.
MOST_FAILURES = 10
MOST_ADDRESSES = 4_096
WINDOW_S = 60.0


def key_of(scope: Scope) -> ApiKey | None:
    """The key with which a request came; None where keys are not asked for."""
    return scope.get(SCOPE_KEY)


@dataclass(slots=True)
class Failures:
    """Wrong keys by client address: bounded in addresses, the oldest forgotten first."""

    clock: Callable[[], float] = time.monotonic
    _counts: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict[str, tuple[float, int]])

    def wait_s(self, address: str) -> float | None:
        """Count one more; how long this address has to wait, None while it has not failed too often."""
        now_s = self.clock()
        began_s, count = self._counts.pop(address, (now_s, 0))
        if now_s - began_s >= WINDOW_S:
            began_s, count = now_s, 0
        self._counts[address] = (began_s, count + 1)
        if len(self._counts) > MOST_ADDRESSES:
            self._counts.popitem(last=False)
        return began_s + WINDOW_S - now_s if count >= MOST_FAILURES else None


class KeyGate:
    """ASGI middleware in front of ``app``. A wrong key is a 401, too many of them from one address a 429; a
    right one always passes, so nobody can lock out somebody else."""

    def __init__(self, app: Starlette, open_routes: Sequence[BaseRoute], keyring: Keyring) -> None:
        self._app = app
        # The same errors in the same shape; only the routes are fewer.
        self._open = Starlette(routes=list(open_routes), exception_handlers=app.exception_handlers)
        self._open.router.redirect_slashes = False
        self._open_routes = open_routes
        self._keyring = keyring
        self._failures = Failures()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self._app
        if scope["type"] == "http":
            if self._is_open(scope):
                app = self._open
            else:
                try:
                    scope[SCOPE_KEY] = self._authenticated(scope)
                except ApiError as error:
                    app = error.response()
        await app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is not Match.NONE for route in self._open_routes)

    def _authenticated(self, scope: Scope) -> ApiKey:
        """Raise ApiError (401, 429)."""
        given = Headers(scope=scope).get("authorization", "")
        kind, _, key = given.partition(" ")
        key = key.strip()
        if not key or kind.lower() != "bearer":
            raise _unauthorized("no API key was given; send it as: Authorization: Bearer KEY", None)
        found = self._keyring.find(key)
        if found is not None and not self._keyring.has_expired(found):
            return found
        client = scope.get("client")
        wait_s = self._failures.wait_s(client[0] if client else "")
        if wait_s is not None:
            raise ApiError(
                429,
                "too many requests with a wrong API key came from this address",
                code="too_many_wrong_keys",
                retry_after_s=wait_s,
                retry=False,
            )
        why = "this API key is not known here" if found is None else "this API key has expired"
        raise _unauthorized(why, "invalid_api_key" if found is None else "expired_api_key")


def _unauthorized(message: str, code: str | None) -> ApiError:
    return ApiError(
        401, message, code=code or "missing_api_key", retry=False, headers={"WWW-Authenticate": "Bearer"}
    )
