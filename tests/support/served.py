"""The control API behind a real listener in this process, for clients that misbehave."""

import asyncio
from pathlib import Path

from infer_engine.control.api import build_control
from infer_engine.control.context import Context
from infer_engine.control.problems import malformed_request
from infer_engine.listener import Listener
from infer_engine.sockets import bind_unix


class Served:
    def __init__(self, context: Context, path: Path) -> None:
        self.path = path
        self.listener = Listener(
            build_control(context, lambda _: "admin"), bind_unix(path), malformed=malformed_request()
        )

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self.path), limit=4_096)

    async def answers(self) -> bool:
        """It still does."""
        reader, writer = await self.connect()
        writer.write(b"GET /control/v1/state HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        await writer.wait_closed()
        return answer.startswith(b"HTTP/1.1 200 ")

    async def open(self, query: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.connect()
        writer.write(f"GET /control/v1/watch?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        return reader, writer

    async def until_connections(self, count: int) -> None:
        async with asyncio.timeout(60):
            while self.listener.connections != count:  # noqa: ASYNC110 - the listener has no event for it
                await asyncio.sleep(0.02)
