"""The console in a browser: textual-serve's page behind a token. Every tab is a console process of its own.

The token is in the URL that is printed; whoever opens that gets a cookie, and the URL without the token.
Without either nothing is answered.
"""

import asyncio
import hmac
import ipaddress
import logging
import shlex
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp_jinja2
from aiohttp import WSCloseCode, web
from textual_serve.server import Server

from infer_console.ui.web_tab import Tab, cells, hold_little

COOKIE = "infer_console_token"
#: Consoles at once; a tab more is told so.
MOST_TABS = 8
#: A page that does not answer for so long is gone.
HEARTBEAT_S = 15.0
USUAL_SIZE = 80, 24
MOST_FONT, USUAL_FONT = 64, 16
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
        self._words = tuple(words)
        self._token = token
        self._announce = announce
        self._tabs = 0
        self._pages: set[web.WebSocketResponse] = set()

    @property
    def url(self) -> str:
        """With the token: a secret."""
        return f"{self.public_url}/?token={self._token}"

    def initialize_logging(self) -> None:
        """Requests, whose URLs have the token, are not logged."""
        logging.getLogger("textual-serve").setLevel(logging.WARNING)

    async def on_startup(self, app: web.Application) -> None:
        """Nothing is said before it can be reached."""

    def serve(self, debug: bool = False) -> None:
        """Until SIGINT or SIGTERM. Raise OSError where the port cannot be had."""
        del debug
        self.initialize_logging()
        loop = asyncio.new_event_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.request_exit)
        web.run_app(
            self._make_app(),
            host=self.host,
            port=self.port,
            handle_signals=False,
            loop=loop,
            print=lambda *_: self._announce(self.url),
        )

    async def on_shutdown(self, app: web.Application) -> None:
        """Their consoles end with their pages."""
        for page in tuple(self._pages):
            await page.close(code=WSCloseCode.GOING_AWAY, drain=False)

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._guarded)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._is_ours(request.host):
            return web.Response(status=421, text="this host name is not served here\n")
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
        if origin is not None and not _is_of(origin, request.host):
            return web.Response(status=403, text="this page is not the console's\n")
        if self._tabs >= MOST_TABS:
            return web.Response(status=503, text=f"{MOST_TABS} consoles are open; close one\n")
        self._tabs += 1
        try:
            return await handler(request)
        finally:
            self._tabs -= 1

    @aiohttp_jinja2.template("app_index.html")
    async def handle_index(self, request: web.Request) -> dict[str, Any]:
        """With addresses as the browser knows us: a tunnel or a proxy may stand between."""
        secure = request.headers.get("X-Forwarded-Proto", request.scheme) == "https"
        font = cells(request.query.get("fontsize"))
        return {
            "font_size": min(font or USUAL_FONT, MOST_FONT),
            "app_websocket_url": f"{'wss' if secure else 'ws'}://{request.host}/ws",
            "config": {"static": {"url": "/static/"}},
            "application": {"name": self.title},
        }

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        page = web.WebSocketResponse(heartbeat=HEARTBEAT_S, compress=False)
        hold_little(request)
        await page.prepare(request)
        self._pages.add(page)
        width, height = (cells(request.query.get(name)) for name in ("width", "height"))
        try:
            await Tab(self._words, page).run(width or USUAL_SIZE[0], height or USUAL_SIZE[1])
        finally:
            self._pages.discard(page)
        return page

    def _is_ours(self, host: str) -> bool:
        """On loopback it is reached by a name of loopback, through a tunnel too: any other was made to lead
        here. Elsewhere only the operator knows what it is called."""
        return not is_loopback(self.host) or is_loopback(_name_in(host))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())


def _is_of(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def _name_in(host: str) -> str:
    """A Host header's name, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve_web(
    words: Sequence[str], host: str, port: int, token: str, announce: Callable[[str], None]
) -> None:
    """Until SIGINT or SIGTERM. Raise OSError where the port cannot be had."""
    TokenServer(words, host, port, token, announce).serve()
