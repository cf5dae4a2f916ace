"""A console behind a browser's tab: what the page does not read costs frames, and the process ends with the
page."""

import asyncio
import base64
import json
import re
import socket
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pyte
import pytest
from aiohttp import web
from infer_console.ui import web_tab
from infer_console.ui.web import COOKIE, TokenServer
from infer_console.ui.web_tab import Tab, packet_of, pong_of
from support.processes import started_here, wait_gone
from support.terminal import PYTHONPATH

TOKEN = "a-token-that-nobody-guesses"
WAIT_S = 60.0
#: Frames that the operator asks for while the page does not read: each is all of the screen, and more than so
#: many bytes. Buffers on the way hold less than the half of them.
REDRAWS, LEAST_FRAME_BYTES = 100, 8_000
REDRAW = "\x0c"
PAUSE_S = 0.02
RECEIVE_BUFFER_BYTES = 8_192
COLUMNS, ROWS = 160, 45


class Page:
    """A websocket that is read when the test does."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self.read_bytes = 0

    def send(self, *message: object) -> None:
        text = json.dumps(message).encode()
        assert len(text) < 126
        self._writer.write(bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text)

    @property
    def running(self) -> int:
        """The number that tells how new the picture is."""
        found = re.search(r"RUN (\d[\d,]*)", "\n".join(self._screen.display))
        return int(found[1].replace(",", "")) if found else -1

    async def until_running(self, number: int) -> None:
        """Read until that is shown, or a newer one."""
        async with asyncio.timeout(WAIT_S):
            while self.running < number:
                self._stream.feed(await self._frame())

    async def _frame(self) -> bytes:
        head = await self._reader.readexactly(2)
        size_bytes = head[1] & 0x7F
        if size_bytes >= 126:
            size_bytes = int.from_bytes(await self._reader.readexactly(2 if size_bytes == 126 else 8), "big")
        content = await self._reader.readexactly(size_bytes)
        self.read_bytes += size_bytes
        return content if head[0] & 0x0F == 2 else b""


@asynccontextmanager
async def opened(report: Path) -> AsyncGenerator[Page]:
    server = TokenServer(
        [sys.executable, "-m", "support.ticker", str(report)], "127.0.0.1", 1, TOKEN, lambda _: None
    )
    runner = web.AppRunner(await server._make_app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (host, port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=4_096)
    key = base64.b64encode(bytes(16)).decode()
    writer.write(
        f"GET /ws?width={COLUMNS}&height={ROWS} HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Cookie: {COOKIE}={TOKEN}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    try:
        assert b" 101 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        yield Page(reader, writer)
    finally:
        writer.transport.abort()
        async with asyncio.timeout(WAIT_S):
            await runner.cleanup()


def pictures(report: Path) -> int:
    return json.loads(report.read_text(encoding="utf-8"))["pictures"]


@pytest.fixture(autouse=True)
def what_consoles_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)


async def redraw(page: Page) -> None:
    """Ask for frames one by one: those that are asked for at once are one."""
    for _ in range(REDRAWS):
        page.send("stdin", REDRAW)
        await asyncio.sleep(PAUSE_S)


#: What else this process has started: the servers of other tests.
_others: set[int] = set()


@pytest.fixture(autouse=True)
def look_around() -> None:
    _others.clear()
    _others.update(started_here())


def new_children() -> list[int]:
    return [pid for pid in started_here() if pid not in _others]


async def until_consoles(count: int) -> list[int]:
    async with asyncio.timeout(WAIT_S):
        while len(found := new_children()) != count:  # noqa: ASYNC110 - /proc has no event for it
            await asyncio.sleep(0.05)
    return found


async def test_a_page_that_does_not_read_costs_frames_and_no_more(tmp_path: Path) -> None:
    report = tmp_path / "report"
    async with opened(report) as page:
        await page.until_running(1)
        before, shown = page.read_bytes, pictures(report)
        await redraw(page)
        number = pictures(report)
        assert number > shown
        await page.until_running(number)
        assert page.read_bytes - before < REDRAWS * LEAST_FRAME_BYTES
        # And while it does not read, it is heard: the console leaves.
        (console,) = await until_consoles(1)
        await redraw(page)
        page.send("stdin", "q")
        await until_consoles(0)
        assert not wait_gone([console])


class FakePage:
    """``stays`` until its console ends."""

    def __init__(self, *, stays: bool) -> None:
        self._stays = stays
        self.closed = False
        self.sent = b""

    async def send_bytes(self, data: bytes) -> None:
        self.sent += data

    async def close(self) -> None:
        self.closed = True

    def __aiter__(self) -> "FakePage":
        return self

    async def __anext__(self) -> None:
        if not self._stays:
            raise StopAsyncIteration
        await asyncio.Event().wait()


def tab(program: str, page: FakePage) -> Tab:
    return Tab([sys.executable, "-S", "-c", program], cast("web.WebSocketResponse", page))


async def test_what_does_not_end_with_its_page_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_tab, "END_TIMEOUT_S", 0.1)
    page = FakePage(stays=False)
    stubborn = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\nwhile True: signal.pause()"
    async with asyncio.timeout(WAIT_S):
        await tab(stubborn, page).run(80, 24)
    assert page.closed
    await until_consoles(0)


async def test_a_console_that_cannot_begin_says_why() -> None:
    page = FakePage(stays=True)
    async with asyncio.timeout(WAIT_S):
        await tab("import sys; sys.exit('no \x1b]0;such\x07 context')", page).run(80, 24)
    assert b"no " in page.sent
    assert b"context" in page.sent
    assert b"\x1b" not in page.sent
    assert page.closed


MEANINGLESS = [
    *("", "{", "[]", "7", "[" * 5_000, '["quit"]', '["stdin"]', '["stdin", 7]'),
    *(
        '["resize", 1]',
        '["resize", {"width": 0, "height": 5}]',
        '["resize", {"width": "a", "height": 1e999}]',
    ),
]


@pytest.mark.parametrize("text", MEANINGLESS)
def test_what_a_page_should_not_say_is_passed_over(text: str) -> None:
    assert packet_of(text) is None
    assert pong_of(text) is None


def test_what_a_page_says() -> None:
    assert packet_of('["stdin", "j"]') == b"D\0\0\0\1j"
    assert packet_of('["resize", {"width": 120, "height": 36}]') == (
        b'M\0\0\0\x2e{"type": "resize", "width": 120, "height": 36}'
    )
    assert packet_of('["blur"]') == b'M\0\0\0\x10{"type": "blur"}'
    assert pong_of('["ping", 17]') == ["pong", 17]
