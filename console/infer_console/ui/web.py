"""The console in a browser: textual-serve behind a token. Every tab is a console process of its own.

The token is in the URL that is printed; whoever opens that gets a cookie, and the URL without the token.
Without either nothing is answered.
"""

import hmac
import logging
import shlex
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from aiohttp import web
from textual_serve.server import Server

COOKIE = "infer_console_token"
#: Consoles at once; a tab more is told so.
MOST_TABS = 8
#: The page asks a font from elsewhere: it is not fetched. Nobody else may frame it.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self' ws: wss:; frame-ancestors 'none'"
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class TokenServer(Server):
    """``words`` are the console's command line; ``announce`` is told the URL when it can be opened."""

    def __init__(
        self, words: Sequence[str], host: str, port: int, token: str, announce: Callable[[str], None]
    ) -> None:
        shown = f"[{host}]" if ":" in host else host
        super().__init__(
            shlex.join(words), host, port, title="infer-console", public_url=f"http://{shown}:{port}"
        )
        self._token = token
        self._announce = announce
        self._tabs = 0

    @property
    def url(self) -> str:
        """With the token: a secret."""
        return f"{self.public_url}/?token={self._token}"

    def initialize_logging(self) -> None:
        """Requests, whose URLs have the token, are not logged."""
        logging.getLogger("textual-serve").setLevel(logging.WARNING)

    async def on_startup(self, app: web.Application) -> None:
        self._announce(self.url)

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._guarded)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.query.get("token")
        if given is not None and self._is_token(given) and request.path == "/":
            answer = web.HTTPFound("/")
            answer.set_cookie(COOKIE, self._token, httponly=True, samesite="Strict")
            raise answer
        if not self._is_token(request.cookies.get(COOKIE, "")):
            return web.Response(
                status=403, text="the URL with its token is needed, as infer-console web prints it\n"
            )
        if request.path != "/ws":
            response = await handler(request)
            response.headers["Content-Security-Policy"] = POLICY
            response.headers["Referrer-Policy"] = "no-referrer"
            return response
        return await self._tab(request, handler)

    async def _tab(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A browser says from which page it comes: only ours may open a console."""
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            return web.Response(status=403, text="this page is not the console's\n")
        if self._tabs >= MOST_TABS:
            return web.Response(status=503, text=f"{MOST_TABS} consoles are open; close one\n")
        self._tabs += 1
        try:
            return await handler(request)
        finally:
            self._tabs -= 1

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())


def serve_web(
    words: Sequence[str], host: str, port: int, token: str, announce: Callable[[str], None]
) -> None:
    """Until SIGINT or SIGTERM. Raise OSError where the port cannot be had."""
    TokenServer(words, host, port, token, announce).serve()
