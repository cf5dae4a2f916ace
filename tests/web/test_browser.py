"""The console in headless Chromium: its own page shows it, keys reach it, it ends with the page, and nobody
else gets one."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import ClientSession
from infer_engine.benchmark.processes import free_port
from support import browser
from support.browser import browsing
from support.processes import children, wait_gone

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(browser.found() is None, reason="no Chromium here (Debian: apt-get install chromium)"),
]
START = "from infer_console.cli import main; raise SystemExit(main())"
WAIT_S = 120.0


class EndedError(AssertionError):
    pass


@asynccontextmanager
async def started(*words: str) -> AsyncGenerator[Process]:
    process = await create_subprocess_exec(
        sys.executable, "-c", START, *words, stdout=PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(30):
                await process.communicate()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def line_with(process: Process, words: bytes) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_S):
        while line := await process.stdout.readline():
            if words in line:
                return line.decode()
    raise EndedError(f"it ended without saying {words!r}")


@asynccontextmanager
async def served(place: Path) -> AsyncGenerator[tuple[str, Process]]:
    """The URL with its token, and the process of ``infer-console web``, for a simulated fleet of four."""
    control = f"unix://{place}/control.sock"
    words = ("--simulate", "llama-70b@4xh100", "--replicas", "4", "--state-dir", str(place / "state"))
    async with started("serve", *words, "--control", control, "--listen", "127.0.0.1:0") as server:
        await line_with(server, b'"control"')
        async with AsyncExitStack() as stack:
            for port in (free_port() for _ in range(3)):
                web = await stack.enter_async_context(
                    started("--connect", control, "web", "--port", str(port))
                )
                with suppress(EndedError):  # somebody else has the port by now
                    said = await line_with(web, b"/?token=")
                    break
            else:
                raise EndedError("the console's page is served at none of three ports")
            yield next(word for word in said.split() if "/?token=" in word), web


def consoles(web: Process) -> list[int]:
    return children(web.pid)


async def until_consoles(web: Process, count: int) -> list[int]:
    async with asyncio.timeout(WAIT_S):
        while len(found := consoles(web)) != count:  # noqa: ASYNC110 - /proc has no event for it
            await asyncio.sleep(0.1)
    return found


async def test_the_console_in_a_browser(tmp_path: Path) -> None:
    async with served(tmp_path) as (url, web), browsing(tmp_path / "profile") as chromium:
        async with chromium.page() as page:
            await page.go(url.split("?")[0])
            await page.says("token is needed")
            assert not consoles(web)

            await page.go(url)
            await page.shows("4/4 ready")
            await page.shows("TTFT")  # a narrow link, which a busy machine is, gives rows one after the other
            assert "token=" not in await page.evaluate("document.URL")
            keep(await page.picture(), tmp_path, "web-fleet.png")
            (console,) = await until_consoles(web, 1)

            await page.click()
            await page.press("2")
            await page.shows("ROSTER")
            await page.shows("4/4 ready")
            await page.press("?")
            await page.shows("small letters look, capitals act")
            keep(await page.picture(), tmp_path, "web-help.png")

            # Its console ends with the page, and only that.
            await page.close()
            await until_consoles(web, 0)
            assert not wait_gone([console])
            assert web.returncode is None

        async with chromium.page() as page:
            await page.go(url)
            await page.shows("4/4 ready")
            (console,) = await until_consoles(web, 1)
            web.send_signal(signal.SIGINT)
            async with asyncio.timeout(WAIT_S):
                assert await web.wait() == 0
            assert not wait_gone([console])


def keep(picture: bytes, place: Path, name: str) -> None:
    """Where ``INFER_CONSOLE_PICTURES`` says, to be looked at."""
    (Path(os.environ.get("INFER_CONSOLE_PICTURES", place)) / name).write_bytes(picture)


async def test_who_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as (url, web), ClientSession() as client:
        bare, token = url.split("?token=")
        for path in ("", "?token=wrong", "ws", f"ws?token={token}", "static/js/textual.js"):
            async with client.get(bare + path) as answer:
                assert answer.status == 403, path
        cookie = {"Cookie": f"infer_console_token={token.strip()}"}
        async with client.get(bare, headers={**cookie, "Host": "rebound.example"}) as answer:
            assert answer.status == 421
        upgrade = {
            **cookie,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        async with client.get(f"{bare}ws", headers={**upgrade, "Origin": "http://else.example"}) as answer:
            assert answer.status == 403
        async with client.get(bare, headers=cookie) as answer:
            assert answer.status == 200
        assert not consoles(web)
