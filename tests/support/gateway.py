"""A gateway on a real listener, in the test's own event loop, above a scripted fleet."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from infer_engine.connections import Connections
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation
from infer_engine.gateway.app import build_gateway, malformed_request, too_many_connections
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.listener import Listener
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.settings import ReplicaSettings, ServerSettings
from support.scripted_fleet import ScriptedFleet

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


@dataclass
class Gateway:
    #: Scripted, unless the fixture says otherwise.
    fleet: Any
    tokenizer: Tokenizer
    client: httpx2.AsyncClient
    host: str
    port: int
    listener: Listener
    #: Of the raw connections: closed with the gateway, so that a test that fails leaves none to the next.
    writers: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    async def generation(self, index: int = 0) -> Generation:
        """The ``index``-th request that reached the fleet, once it did."""
        await until(lambda: len(self.fleet.generations) > index, "a request at the fleet")
        return self.fleet.generations[index]

    async def post(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        """``body`` is a document, or bytes to send as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(
            path, content=content, headers={"content-type": "application/json", **headers}
        )

    async def raw(
        self,
        path: str,
        body: Any,
        receive_buffer: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A request on a connection of its own; the answer is the reader's to read."""
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (self.host, self.port))
        reader, writer = await asyncio.open_connection(sock=sock)
        self.writers.append(writer)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        writer.write(post_head(path, len(content), headers) + content)
        await writer.drain()
        return reader, writer


def post_head(path: str, content_length: int, headers: Mapping[str, str] | None = None) -> bytes:
    head = [f"POST {path} HTTP/1.1", "host: x", "content-type: application/json"]
    head += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*head, f"content-length: {content_length}", "", ""]).encode()


@asynccontextmanager
async def serve_gateway(
    tokenizer: Tokenizer,
    *,
    context_length: int,
    settings: GatewaySettings | None = None,
    fleet: Any = None,
    limits: Connections | None = None,
    **application: Any,
) -> AsyncGenerator[Gateway]:
    """Above ``fleet``, or a new scripted one."""
    fleet = fleet or ScriptedFleet()
    app = build_gateway(
        fleet, tokenizer, model_name="tiny", context_length=context_length, settings=settings, **application
    )
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    host, port = sock.getsockname()
    listener = Listener(app, sock, limits=limits, refusal=too_many_connections, malformed=malformed_request())
    await listener.start()
    try:
        async with httpx2.AsyncClient(base_url=f"http://{host}:{port}", timeout=60, verify=False) as client:
            gateway = Gateway(fleet, tokenizer, client, host, port, listener)
            try:
                yield gateway
            finally:
                for writer in gateway.writers:
                    writer.close()
    finally:
        await listener.close()


@asynccontextmanager
async def running_fleet(model: Path, **replica: Any) -> AsyncGenerator[Fleet]:
    """A real fleet of one replica process on ``model``, ready."""
    settings = ReplicaSettings(model=str(model), dtype="fp32", threads=1, **replica)
    fleet = Fleet(ServerSettings(replicas=1, replica=settings))
    await fleet.start()
    try:
        await until(lambda: fleet.ready, "a ready replica", 180)
        yield fleet
    finally:
        await fleet.stop()


async def until(seen: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    """Poll until ``seen()`` is true."""
    deadline = time.monotonic() + timeout_s
    while not seen():
        if time.monotonic() > deadline:
            raise AssertionError(f"never saw {what}")
        await asyncio.sleep(0.01)
