"""infer-console web: nobody without the token."""

import asyncio
import shlex
import sys

import pytest
from aiohttp import ClientSession, CookieJar, WSServerHandshakeError, web
from infer_console.cli.web import console_words, refused
from infer_console.connect import parse_url
from infer_console.ui.web import COOKIE, MOST_TABS, TokenServer

TOKEN = "a-token-that-nobody-guesses"
#: Draws what a browser would be sent, without a console.
PROGRAM = (
    "import sys; sys.stdout.buffer.write(b'__GANGLION__\\n'); sys.stdout.flush(); sys.stdin.buffer.read(1)"
)


def test_only_loopback_goes_without_a_token_file() -> None:
    assert refused("127.0.0.1", 8765, None) is None
    assert refused("::1", 8765, None) is None
    assert refused("localhost", 8765, None) is None
    for host in ("0.0.0.0", "10.1.2.3", "::"):
        assert "--token-file is needed" in (refused(host, 8765, None) or "")
        assert refused(host, 8765, "file") is None
    assert "allowed is an address" in (refused("not an address", 8765, None) or "")
    assert "1 to 65535" in (refused("127.0.0.1", 0, None) or "")


def test_a_tab_connects_and_never_starts_an_engine() -> None:
    words = console_words(parse_url("unix:///tmp/it's $(a).sock"), read_only=True)
    assert words[0] == sys.executable
    assert words[-3:] == ["--connect", "unix:///tmp/it's $(a).sock", "--read-only"]
    assert shlex.split(shlex.join(words)) == words


async def _started(server: TokenServer) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(await server._make_app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}"


async def test_nothing_is_answered_without_the_token() -> None:
    told: list[str] = []
    server = TokenServer([sys.executable, "-c", PROGRAM], "127.0.0.1", 8765, TOKEN, told.append)
    runner, url = await _started(server)
    try:
        assert not told, "it is told when it can be reached"
        assert f"/?token={TOKEN}" in server.url
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as client:
            for path in ("/", "/?token=wrong", "/static/js/textual.js", "/download/x", f"/ws?token={TOKEN}"):
                answer = await client.get(url + path)
                assert answer.status == 403, path
                assert TOKEN not in await answer.text()
            with pytest.raises(WSServerHandshakeError, match="403"):
                await client.ws_connect(f"{url}/ws")

            page = await client.get(f"{url}/?token={TOKEN}")
            assert (page.status, page.url.path_qs) == (200, "/")
            assert TOKEN not in str(page.url)
            assert TOKEN not in await page.text()
            assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
            cookie = page.history[0].cookies[COOKIE]
            assert cookie["httponly"]
            assert cookie["samesite"] == "Strict"

            assert (await client.get(f"{url}/static/js/textual.js")).status == 200
            for host in ("rebound.example", "rebound.example:80", "127.0.0.1.nip.example", "[", ""):
                assert (await client.get(url, headers={"Host": host})).status == 421, host
            for host in ("localhost:9000", "[::1]:9000", "127.0.0.1"):
                page = await client.get(url, headers={"Host": host})
                assert f'"ws://{host}/ws"' in await page.text()
            with pytest.raises(WSServerHandshakeError, match="403"):
                await client.ws_connect(f"{url}/ws", headers={"Origin": "http://elsewhere.example"})
            socket = await client.ws_connect(f"{url}/ws", headers={"Origin": url})
            await socket.close()
            server._tabs = MOST_TABS
            with pytest.raises(WSServerHandshakeError, match="503"):
                await client.ws_connect(f"{url}/ws")
    finally:
        async with asyncio.timeout(60):
            await runner.cleanup()
