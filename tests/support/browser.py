"""A headless Chromium, driven over its DevTools protocol."""

import asyncio
import base64
import contextlib
import shutil
import time
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyte
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
START_S, ANSWER_S, SHOWN_S = 90.0, 60.0, 120.0
WIDTH, HEIGHT = 1_440, 860
#: Everything the page's terminal is given is kept, so that a test can draw it: its own glyphs are pixels.
KEEP_WHAT_COMES = """
(() => {
  const Real = WebSocket;
  window.came = [];
  window.WebSocket = class extends Real {
    constructor(...given) {
      super(...given);
      const asked = new URL(given[0]).searchParams;
      window.size = [Number(asked.get("width") || 80), Number(asked.get("height") || 24)];
      this.addEventListener("message", async (message) => {
        const data = message.data;
        if (typeof data === "string") return;
        const bytes = new Uint8Array(data instanceof Blob ? await data.arrayBuffer() : data);
        window.came.push(btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")));
      });
    }
    send(data) {
      const [kind, told] = JSON.parse(data);
      if (kind === "resize") window.size = [told.width, told.height];
      super.send(data);
    }
  };
})();
"""


def found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


class Page:
    """One tab."""

    def __init__(self, socket: ClientWebSocketResponse, close: Callable[[], Awaitable[None]]) -> None:
        self._socket = socket
        self._number = 0
        #: As its cross does.
        self.close = close

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        async with asyncio.timeout(ANSWER_S):
            while True:
                message = await self._socket.receive()
                assert message.type is WSMsgType.TEXT, f"the browser is gone: {message}"
                told = message.json()
                if told.get("id") == self._number:
                    assert "error" not in told, told
                    return told["result"]

    async def go(self, url: str) -> None:
        await self.call("Page.enable")
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=KEEP_WHAT_COMES)
        await self.call("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def click(self) -> None:
        """Into its terminal, which has the keys then."""
        for kind in ("mousePressed", "mouseReleased"):
            at = {"x": WIDTH // 2, "y": HEIGHT // 2}
            await self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    async def press(self, key: str) -> None:
        """A key that writes itself."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, **text)

    async def text(self) -> str:
        """What its terminal shows."""
        columns, rows = await self.evaluate("window.size || [80, 24]")
        screen = pyte.Screen(columns, rows)
        stream = pyte.ByteStream(screen)
        for piece in await self.evaluate("window.came || []"):
            stream.feed(base64.b64decode(piece))
        return "\n".join(line.rstrip() for line in screen.display)

    async def shows(self, words: str) -> str:
        """Its text, once it has that."""
        return await _until(self.text, words)

    async def says(self, words: str) -> str:
        """The page itself, which is no console's."""
        return await _until(lambda: self.evaluate("document.body ? document.body.innerText : ''"), words)

    async def picture(self) -> bytes:
        """As PNG."""
        shot = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])


async def _until(text_of: Callable[[], Awaitable[str]], words: str) -> str:
    deadline_s = time.monotonic() + SHOWN_S
    while words not in (text := await text_of()):
        assert time.monotonic() < deadline_s, f"{words!r} is not shown:\n{text}"
        await asyncio.sleep(0.2)
    return text


class Browser:
    def __init__(self, client: ClientSession, port: int) -> None:
        self._client = client
        self._at = f"http://127.0.0.1:{port}/json"

    @asynccontextmanager
    async def page(self) -> AsyncGenerator[Page]:
        """A new tab; closed with the block at the latest."""
        async with self._client.put(f"{self._at}/new?about:blank") as answer:
            tab = await answer.json()

        async def close() -> None:
            async with self._client.get(f"{self._at}/close/{tab['id']}") as answer:
                await answer.read()

        async with self._client.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            yield Page(socket, close)
        await close()


@asynccontextmanager
async def browsing(profile: Path) -> AsyncGenerator[Browser]:
    """It ends with the block."""
    program = found()
    assert program is not None
    browser = await create_subprocess_exec(
        program,
        *("--headless=new", "--no-sandbox", "--remote-debugging-port=0", f"--user-data-dir={profile}"),
        *("--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"),
        *(f"--window-size={WIDTH},{HEIGHT}", "about:blank"),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )
    try:
        port = await _port(profile / "DevToolsActivePort", browser)
        async with ClientSession() as client:
            yield Browser(client, port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            browser.terminate()
        try:
            async with asyncio.timeout(ANSWER_S):
                await browser.wait()
        except TimeoutError:
            browser.kill()
            await browser.wait()


async def _port(file: Path, browser: Process) -> int:
    """Where it listens, once it has said so."""
    async with asyncio.timeout(START_S):
        while True:
            assert browser.returncode is None, f"the browser ended with {browser.returncode}"
            if len(lines := _lines(file)) >= 2:
                return int(lines[0])
            await asyncio.sleep(0.05)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
