"""One tab of a browser: a console process, its packets to the page, and the page's keys to it. A page that
does not read holds its console's writing up, nobody else's; the process ends with the page."""

import asyncio
import contextlib
import json
import os
import signal
import socket as sockets
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import WSMsgType, web

from infer_console.terminal.safe_text import safe_multiline

#: By which a console knows that it is drawn for a browser.
DRIVER = "infer_console.ui.web_driver:QueuedWebDriver"
#: What a console's driver says before its first packet; other lines before it are passed over.
READY = b"__GANGLION__\n"
MOST_LINES = 10
#: The kernel holds this much of what a page has not read, and no more: what comes after a pause is the
#: present.
SEND_BUFFER_BYTES = 64 * 1024
MOST_PACKET_BYTES = 4 * 1024 * 1024
MOST_KEYS_BYTES = 64 * 1024
MOST_CELLS = 1_000
LAST_BYTES = 4_096
END_TIMEOUT_S, CLOSE_TIMEOUT_S = 3.0, 1.0


class Tab:
    """``words`` are the console's command line."""

    def __init__(self, words: Sequence[str], page: web.WebSocketResponse) -> None:
        self._words = words
        self._page = page
        #: The console has begun to draw.
        self._drawn = False

    async def run(self, width: int, height: int) -> None:
        """Until the console or the page ends; neither is left then. Raise OSError where the console cannot be
        started."""
        process = await asyncio.create_subprocess_exec(
            *self._words,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment(os.environ, width, height),
            start_new_session=True,  # a key in the server's terminal is none of its
        )
        complaints = asyncio.create_task(last_words(process))
        tasks = [asyncio.create_task(work) for work in (self._show(process), self._listen(process))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not self._drawn and not self._page.closed:
                await self._complain(complaints)
        finally:
            for task in (*tasks, complaints):
                task.cancel()
            await asyncio.wait((*tasks, complaints))
            await end(process)
            with contextlib.suppress(TimeoutError, ConnectionError, RuntimeError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._page.close()

    async def _show(self, process: Process) -> None:
        """Packets of the console to the page, each when the one before has been taken."""
        output = process.stdout
        assert output is not None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ValueError):
            for _ in range(MOST_LINES):
                if (line := await output.readline()) == READY:
                    self._drawn = True
                    break
                if not line:
                    return
            while True:
                head = await output.readexactly(5)
                kind, size_bytes = head[:1], int.from_bytes(head[1:], "big")
                if size_bytes > MOST_PACKET_BYTES:
                    return
                payload = await output.readexactly(size_bytes)
                if kind == b"D":
                    await self._page.send_bytes(payload)
                elif kind == b"M" and _type_of(payload) == "exit":
                    return

    async def _complain(self, complaints: asyncio.Task[bytes]) -> None:
        """Why there is no console."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                words = (await complaints).decode("utf-8", "replace")
                text = safe_multiline(words, MOST_LINES) or "the console ended at once"
                await self._page.send_bytes(str(text).replace("\n", "\r\n").encode())

    async def _listen(self, process: Process) -> None:
        """What the page says, to the console. What is not understood is passed over."""
        keys = process.stdin
        assert keys is not None
        with contextlib.suppress(ConnectionError):
            async for message in self._page:
                if message.type != WSMsgType.TEXT:
                    continue
                packet = packet_of(message.data)
                if packet is not None:
                    keys.write(packet)
                    await keys.drain()
                elif (pong := pong_of(message.data)) is not None:
                    await self._page.send_json(pong)


async def last_words(process: Process) -> bytes:
    """The end of what it said on stderr, when that is closed."""
    assert process.stderr is not None
    kept = b""
    while piece := await process.stderr.read(LAST_BYTES):
        kept = (kept + piece)[-LAST_BYTES:]
    return kept


async def end(process: Process) -> None:
    """It ends when its input does; where it does not, by force. What it still says is read, for nobody: a
    pipe with something in it stays open."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGHUP)
    rest = asyncio.create_task(discard(process.stdout))
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    await asyncio.wait((rest,), timeout=END_TIMEOUT_S)
    rest.cancel()


async def discard(output: asyncio.StreamReader) -> None:
    while await output.read(SEND_BUFFER_BYTES):
        pass


def hold_little(request: web.Request) -> None:
    """Of what a page has not read yet."""
    connection = request.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, SEND_BUFFER_BYTES)


def environment(environ: Mapping[str, str], width: int, height: int) -> dict[str, str]:
    return {
        **environ,
        "TEXTUAL_DRIVER": DRIVER,
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "COLUMNS": str(width),
        "ROWS": str(height),
    }


def packet_of(text: str) -> bytes | None:
    """What a page's message is for a console; None where it is nothing for it."""
    kind, data = _message(text)
    if kind == "stdin" and isinstance(data, str):
        return _packet(b"D", data.encode("utf-8", "replace")[:MOST_KEYS_BYTES])
    if kind == "resize" and isinstance(data, dict):
        width, height = cells(data.get("width")), cells(data.get("height"))
        if width is None or height is None:
            return None
        return _packet(b"M", json.dumps({"type": "resize", "width": width, "height": height}).encode())
    if kind in ("focus", "blur"):
        return _packet(b"M", json.dumps({"type": kind}).encode())
    return None


def pong_of(text: str) -> list[Any] | None:
    kind, data = _message(text)
    return ["pong", data] if kind == "ping" else None


def cells(given: object) -> int | None:
    """A width or a height; None where it is none."""
    try:
        number = int(given) if isinstance(given, int | float | str) else 0
    except (ValueError, OverflowError):
        return None
    return number if 1 <= number <= MOST_CELLS else None


def _message(text: str) -> tuple[object, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(message, list) or not message:
        return None, None
    return message[0], message[1] if len(message) > 1 else None


def _packet(kind: bytes, payload: bytes) -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload


def _type_of(payload: bytes) -> object:
    try:
        told = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return told.get("type") if isinstance(told, dict) else None
