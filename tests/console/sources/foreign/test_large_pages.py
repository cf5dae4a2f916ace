"""Pages of megabytes are read beside the loop, whatever asks for them, and one after another."""

import asyncio
import threading
from pathlib import Path

import httpx2
import pytest
from infer_console.sources.foreign import member
from infer_console.sources.foreign.member import Member
from infer_console.watched import Pace, Watched
from infer_engine.foreign import asking
from infer_engine.foreign.adapters import recognise
from infer_engine.foreign.address import parse_address
from infer_engine.foreign.asking import Asking
from infer_engine.foreign.page import Page
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.replica.upstream.probe import Probe
from support.foreign_server import foreign_server, vllm_pages
from support.tiny_model import write_tiny_gguf

LARGE = "".join(f'vllm:other{{engine="0",n="{number}"}} {number}\n' for number in range(400)).encode()


class Readers:
    """In which threads pages were read, and how many at once at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[threading.Thread] = []
        self.most = 0
        self._now = 0
        read = Page.read

        def noted(text: str) -> Page:
            self.threads.append(threading.current_thread())
            self._now += 1
            self.most = max(self.most, self._now)
            try:
                return read(text)
            finally:
                self._now -= 1

        monkeypatch.setattr(Page, "read", noted)

    @property
    def on_the_loop(self) -> int:
        return sum(each is threading.current_thread() for each in self.threads)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Readers:
    """Nobody gives up on a machine that has much else to do."""
    for limit in ("ANSWER_TIMEOUT_S", "CONNECT_TIMEOUT_S", "WHOLE_ANSWER_S"):
        monkeypatch.setattr(asking, limit, 60.0)
    monkeypatch.setattr(member, "LONGEST_LOOK_S", 60.0)
    return Readers(monkeypatch)


@pytest.mark.parametrize("large", [True, False])
async def test_whatever_asks_for_a_large_page_does_not_read_it_on_its_loop(
    large: bool, readers: Readers, tmp_path: Path
) -> None:
    metrics = b'vllm:num_requests_running{engine="0"} 1\n' + (LARGE if large else b"")
    tokenizer = Tokenizer.from_file(write_tiny_gguf(tmp_path / "tiny.gguf"))
    with foreign_server({**vllm_pages("before"), "/metrics": metrics}) as server:
        asks = Asking(server.url, None, httpx2.AsyncHTTPTransport())
        probe = Probe(parse_address(f"auto+{server.url}"), None, tokenizer)
        watched = Watched("auto", False, "127.0.0.1", int(server.url.rpartition(":")[2]))
        members = [
            Member(watched, f"r{number}", None, httpx2.AsyncHTTPTransport(), Pace()) for number in range(4)
        ]
        try:
            await recognise(asks)
            await probe.look()
            looks = [look for each in members if (look := each.begin()) is not None]
            await asyncio.gather(*looks)
            assert all(each.live for each in members)
        finally:
            await asks.aclose()
            await probe.aclose()
            for each in members:
                await each.aclose()
    # Each is recognised by its page before it is read: all of them.
    assert len(readers.threads) >= 2 + 4
    assert readers.on_the_loop == (0 if large else len(readers.threads))
    assert readers.most == 1
