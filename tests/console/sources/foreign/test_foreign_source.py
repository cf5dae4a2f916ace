"""Consoles and verbs on servers that are not ours, over real HTTP."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from infer_console.actions.drain import DRAIN
from infer_console.collector import Collector
from infer_console.connect import parse_url, resolve
from infer_console.sources.client import EngineClient
from infer_console.sources.failures import RefusedError, UnreachableError
from infer_console.state.picture import Picture
from infer_engine.foreign import asking
from infer_engine.protocol import Drain, Problem
from support.eventually import eventually
from support.foreign_server import ForeignServer, foreign_server, llamacpp_pages, vllm_pages


@contextmanager
def watching(url: str) -> Generator[Collector]:
    collector = Collector(parse_url(url))
    collector.start()
    try:
        yield collector
    finally:
        assert collector.stop(60)


@pytest.fixture
def vllm() -> Generator[ForeignServer]:
    with foreign_server(vllm_pages("before")) as server:
        yield server


def live(collector: Collector) -> Picture | None:
    picture = collector.picture
    return picture if picture.link.state == "live" and picture.replicas else None


def test_the_same_console_on_a_vllm(vllm: ForeignServer) -> None:
    with watching(f"vllm+{vllm.url}") as collector:
        picture = eventually(lambda: live(collector))
        assert picture.read_only
        assert {"watched", "estimates"} <= picture.capabilities
        vllm.pages = vllm_pages("busy")
        picture = eventually(
            lambda: collector.picture if collector.picture.replicas["e0"].status.running == 4 else None
        )
        assert picture.totals is not None
        assert picture.totals.waiting == 1
        assert picture.totals.tokens_per_s
        assert DRAIN.allowed(picture, "e0") == "this server can only be watched"
        answer = collector.command(Drain(), "e0").result(60)
        assert isinstance(answer, Problem)
        assert (answer.status, answer.code) == (501, "watched_only")
    # It looks, and nothing else; what never changes it asks for once.
    assert {line.partition(" ")[0] for line in vllm.asked} == {"GET"}
    assert set(vllm.asked) == {"GET /metrics", "GET /health", "GET /version", "GET /v1/models"}
    assert vllm.asked.count("GET /version") == 1


def test_a_restart_is_an_event_and_another_incarnation(vllm: ForeignServer) -> None:
    vllm.pages = vllm_pages("after")
    with watching(f"vllm+{vllm.url}") as collector:
        eventually(lambda: live(collector))
        vllm.pages = vllm_pages("before")
        picture = eventually(lambda: collector.picture if collector.picture.events else None)
        assert picture.events[-1].reason == "RESTARTED"
        assert eventually(lambda: collector.picture.replicas["e0"].status.incarnation) == 1


def test_a_server_that_dies_and_comes_back_is_a_state_and_no_end() -> None:
    with foreign_server(vllm_pages("after")) as first:
        port = int(first.url.rpartition(":")[2])
        collector = Collector(parse_url(f"auto+{first.url}"))
        collector.start()
        eventually(lambda: live(collector))
        first.statuses["/metrics"] = 500
        lost = eventually(lambda: collector.picture if collector.picture.link.state == "lost" else None)
        assert "/metrics answers 500" in lost.link.message
        assert "e0" in lost.replicas  # what was known last stays on the screen
    try:
        eventually(lambda: "cannot connect" in collector.picture.link.message)
        with foreign_server(llamacpp_pages("busy"), port):  # another one, in its place
            picture = eventually(lambda: live(collector))
            assert picture.fleet is not None
            assert (picture.fleet.version or "").startswith("llama.cpp")
    finally:
        assert collector.stop(60)


def test_a_server_that_hangs_is_lost_and_found(vllm: ForeignServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ANSWER_TIMEOUT_S", 0.3)
    with watching(f"vllm+{vllm.url}") as collector:
        eventually(lambda: live(collector))
        vllm.answering.clear()
        lost = eventually(lambda: collector.picture if collector.picture.link.state == "lost" else None)
        assert "no answer in time" in lost.link.message
        vllm.answering.set()
        eventually(lambda: live(collector))


def test_a_server_that_talks_nonsense_is_not_believed(vllm: ForeignServer) -> None:
    vllm.pages["/metrics"] = b"\x1b]0;x\x07{{{{ 1\n"
    with watching(f"vllm+{vllm.url}") as collector:
        picture = eventually(lambda: collector.picture if collector.picture.link.message else None)
        assert "not Prometheus text" in picture.link.message
        assert not picture.replicas
        vllm.pages = vllm_pages("busy")
        eventually(lambda: live(collector))


def test_a_page_without_an_end_is_not_read(vllm: ForeignServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MAX_PAGE_BYTES", 10_000)

    async def look() -> None:
        async with EngineClient(parse_url(f"vllm+{vllm.url}")) as client:
            await client.state()

    with pytest.raises(RefusedError, match="/metrics is longer than 10000 bytes"):
        asyncio.run(look())


def test_slots_are_the_roster_of_the_replica_that_is_looked_at() -> None:
    with foreign_server(llamacpp_pages("busy")) as server, watching(f"auto+{server.url}") as collector:
        picture = eventually(lambda: live(collector))
        assert picture.replicas["e0"].status.foreign == "llama.cpp"
        assert not picture.replicas["e0"].rows
        collector.set_interest(["e0"])
        picture = eventually(lambda: collector.picture if collector.picture.replicas["e0"].rows else None)
        assert picture.replicas["e0"].order == ("task-8", "task-6", "task-5", "task-4")
        server.pages = llamacpp_pages("after")
        eventually(lambda: not collector.picture.replicas["e0"].rows)


@pytest.mark.parametrize(
    ("pages", "product"),
    [
        (vllm_pages("busy"), "vLLM"),
        (llamacpp_pages("busy"), "llama.cpp"),
        ({"/server_info": b'{"model_path":"q","version":"0.5"}'}, "SGLang"),
        ({"/slots": b"[]", "/props": b'{"total_slots":4}', "/health": b"{}"}, "llama.cpp"),
    ],
)
def test_auto_finds_out_by_asking(pages: dict[str, bytes], product: str) -> None:
    async def look() -> str | None:
        async with EngineClient(parse_url(f"auto+{server.url}")) as client:
            return (await client.state()).replicas[0].foreign

    with foreign_server(pages) as server:
        assert asyncio.run(look()) == product


def test_auto_says_what_it_found_when_it_is_nothing_it_knows() -> None:
    async def look() -> None:
        async with EngineClient(parse_url(f"auto+{server.url}")) as client:
            await client.state()

    with (
        foreign_server({}) as server,
        pytest.raises(RefusedError, match="neither vLLM, SGLang nor llama"),
    ):
        asyncio.run(look())


def test_a_key_comes_from_the_environment_and_its_absence_is_said(vllm: ForeignServer) -> None:
    async def look(environ: dict[str, str], kind: str = "vllm") -> None:
        target = resolve([f"{kind}+{vllm.url}"], environ)
        assert target is not None
        async with EngineClient(target) as client:
            await client.state()

    asyncio.run(look({"INFER_CONSOLE_TOKEN": "s3cret"}))
    assert vllm.keys == {"Bearer s3cret"}
    vllm.statuses["/metrics"] = 401
    for kind in ("vllm", "auto"):
        with pytest.raises(RefusedError) as caught:
            asyncio.run(look({}, kind))
        assert "INFER_CONSOLE_TOKEN" in caught.value.problem.detail
        assert caught.value.problem.code == "unauthorized"


def test_what_nobody_listens_for_is_unreachable() -> None:
    async def look() -> None:
        async with EngineClient(parse_url("vllm+http://127.0.0.1:1")) as client:
            await client.hello()

    with pytest.raises(UnreachableError):
        asyncio.run(look())
