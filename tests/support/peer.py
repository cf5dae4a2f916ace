"""A real server of somebody else's as a process of this test run: looked at, kept busy, killed, started anew.

``bench`` has to be on the path: what starts it is what measures it.
"""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infer_console.collector import Collector
from infer_console.connect import parse_url
from infer_console.state.picture import Picture
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.processes import ServerProcess, free_port
from peers.clients import Clients
from peers.servers import start_small, url_of, wait_ready
from support.eventually import eventually
from support.processes import children, wait_gone

PRODUCTS = {"vllm": "vLLM", "llamacpp": "llama.cpp"}
#: On one core beside everything else.
LONG_S = 400.0


@dataclass
class Peer:
    name: str
    port: int
    log: Path
    process: ServerProcess

    @property
    def url(self) -> str:
        return url_of(self.port)

    @property
    def connect(self) -> str:
        return f"{self.name}+{self.url}"

    @property
    def product(self) -> str:
        return PRODUCTS[self.name]

    def kill(self) -> None:
        """With all that it started, at once; they are gone when this returns."""
        family = [self.process.pid, *children(self.process.pid)]
        self.process.kill()
        assert wait_gone(family) == []

    def restart(self) -> None:
        """On the same port."""
        self.process.stop()
        self.process = start_small(self.name, self.port, self.log)
        wait_ready(self.name, self.process, self.port)


@contextmanager
def starting(name: str, folder: Path) -> Generator[Peer]:
    """Ready when it is yielded; afterwards nothing of it is left."""
    port = free_port()
    peer = Peer(name, port, folder / "log", start_small(name, port, folder / "log"))
    try:
        wait_ready(name, peer.process, port)
        yield peer
    finally:
        family = children(peer.process.pid)
        peer.process.stop()
        assert wait_gone(family) == []


@contextmanager
def busy(peer: Peer, dies: bool = False) -> Generator[Clients]:
    """Six clients that ask without pause, where four requests fit. What one of them fails by comes out, but
    that of a server that ``dies`` meanwhile, which has to fail them."""
    clients, leave, failed = Clients(), threading.Event(), list[BaseException]()

    async def work() -> None:
        working = asyncio.create_task(clients.work(peer.url))
        while not leave.is_set() and not working.done():
            await asyncio.wait([working], timeout=0.2)
        if working.done():
            working.result()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    def body() -> None:
        try:
            asyncio.run(work())
        except BaseExceptionGroup as group:
            failed.append(group.exceptions[0])

    thread = threading.Thread(target=body, name="clients")
    thread.start()
    try:
        yield clients
    finally:
        leave.set()
        thread.join()
    if dies:
        assert isinstance(failed[0], BenchError)
    elif failed:
        raise failed[0]


@contextmanager
def watching(url: str) -> Generator[Collector]:
    collector = Collector(parse_url(url))
    collector.start()
    try:
        yield collector
    finally:
        assert collector.stop(60)


def live(collector: Collector) -> Picture:
    def look() -> Picture | None:
        picture = collector.picture
        return picture if picture.link.state == "live" and picture.replicas else None

    return eventually(look, LONG_S)
