"""A fleet of servers that are not ours: everything real but the servers, which are fakes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from infer_engine.fleet.feed import FeedItem
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.upstream import upstream_fleet
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import Event
from infer_engine.settings import ServerSettings
from support.fake_upstream import FakeUpstream, Kind
from support.fleets import until
from support.tiny_model import write_tiny_gguf

CONTEXT = 512


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_file(write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"))


def fake(tokenizer: Tokenizer, kind: Kind = "vllm", **how: Any) -> FakeUpstream:
    return FakeUpstream(kind, lambda text: tokenizer.encode(text, allow_special=True), **how)


@asynccontextmanager
async def fleet_of(
    tokenizer: Tokenizer,
    *fakes: FakeUpstream,
    run_dir: Path,
    environment: dict[str, str] | None = None,
    **how: Any,
) -> AsyncGenerator[tuple[Fleet, list[FeedItem]]]:
    settings = ServerSettings(upstreams=tuple(each.url for each in fakes), **how)
    fleet = upstream_fleet(
        settings, tokenizer, CONTEXT, environment=environment or {}, run_dir=run_dir, look_s=0.05
    )
    happened: list[FeedItem] = []
    fleet.feed.subscribe(happened.append)
    await fleet.start()
    try:
        yield fleet, happened
    finally:
        await fleet.stop()


async def ready(fleet: Fleet, count: int) -> None:
    await until(lambda: len(fleet.capacity.ready_replicas()) == count, f"{count} ready replicas")


def events(happened: list[FeedItem], kind: str) -> list[Event]:
    return [item for item in happened if isinstance(item, Event) and item.kind == kind]
