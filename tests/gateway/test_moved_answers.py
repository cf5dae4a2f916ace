"""Answers whose sequences go on at another replica in the midst of them: what follows from prompt and output
goes along, what the gateway keeps stays here. Two processes of a tiny model."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import openai
import pytest
import pytest_asyncio
from infer_engine.fleet.feed import FeedItem
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Refusal
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import Event, Preempt
from infer_engine.settings import ReplicaSettings, ServerSettings
from support.fleets import START_S
from support.gateway import Gateway, serve_gateway, until
from support.scripted_fleet import say
from support.tiny_model import write_tiny_gguf

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(3 * START_S)]

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "legs": {"type": "integer"}},
    "required": ["name", "legs"],
    "additionalProperties": False,
}

#: A tiny model's answer may be over within a few steps.
TRIES = 20


class Pair:
    """While ``moving``, each sequence moves once, as soon as it has three tokens."""

    def __init__(self, fleet: Fleet, client: openai.AsyncOpenAI) -> None:
        self.fleet = fleet
        self.client = client
        self.moving = False
        self.moves: list[Event] = []
        fleet.feed.subscribe(self._hear)

    def _hear(self, item: FeedItem) -> None:
        if isinstance(item, Event):
            self.moves += [item] if item.kind == "move" else []
            return
        if not self.moving:
            return
        for row in self.fleet.rows(item.replica, "running"):
            generation = self.fleet.find(row.id)
            if generation is not None and len(generation.emitted) >= 3 and not generation.moves:
                with contextlib.suppress(Refusal):  # it is on its way already
                    self.fleet.preempting.preempt(row.id, Preempt(to="r1" if item.replica == "r0" else "r0"))

    async def twice(self, **asked: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Texts and reasons of the choices undisturbed, and when they move. A short answer can be over before
        it is on its way; then it is asked again."""
        still = await self._once(False, asked)
        assert not self.moves
        for _ in range(TRIES):
            moved = await self._once(True, asked)
            if len({event.request for event in self.moves}) == asked.get("n", 1):
                return still, moved
        raise AssertionError(f"of {TRIES} answers none moved before it was over")

    async def _once(self, moving: bool, asked: dict[str, Any]) -> list[tuple[str, str]]:
        self.moving, self.moves = moving, []
        try:
            answer = await self.client.completions.create(model="tiny", prompt=[40] * 20, **asked)
        finally:
            self.moving = False
        return [(choice.text, choice.finish_reason) for choice in answer.choices]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Pair]:
    model = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", context_length=2048)
    replica = ReplicaSettings(model=str(model), dtype="fp32", threads=1, kv_blocks=128)
    fleet = Fleet(ServerSettings(replicas=2, replica=replica, rebalance=False))
    await fleet.start()
    try:
        await until(lambda: len(fleet.capacity.ready_replicas()) == 2, "two ready replicas", START_S)
        async with serve_gateway(Tokenizer.from_file(model), context_length=2048, fleet=fleet) as gateway:
            where: dict[str, Any] = {"base_url": f"{gateway.url}/v1", "api_key": "none", "max_retries": 0}
            async with openai.AsyncOpenAI(**where) as client:
                yield Pair(fleet, client)
    finally:
        await fleet.stop()


async def test_an_answer_bound_to_a_grammar(pair: Pair) -> None:
    format_ = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}
    still, moved = await pair.twice(seed=3, max_tokens=200, extra_body={"response_format": format_})
    assert moved == still
    assert still[0][0].startswith("{")


async def test_an_answer_that_ends_at_a_stop_string(pair: Pair) -> None:
    asked: dict[str, Any] = {"seed": 5, "temperature": 1.0, "extra_body": {"ignore_eos": True}}
    [(whole, _)], _ = await pair.twice(max_tokens=60, **asked)
    middle = whole[len(whole) // 2 : len(whole) // 2 + 3]
    before = whole[: whole.index(middle)]
    still, moved = await pair.twice(max_tokens=60, stop=[middle], **asked)
    assert (still, moved) == ([(before, "stop")], [(before, "stop")])


async def test_several_choices_of_one_prompt(pair: Pair) -> None:
    extra = {"ignore_eos": True}
    still, moved = await pair.twice(n=3, seed=7, temperature=1.0, max_tokens=40, extra_body=extra)
    assert moved == still
    assert len({text for text, _ in still}) == 3


async def test_an_answer_that_starts_over_has_nothing_of_what_was_there_before(gateway: Gateway) -> None:
    body = {"model": "tiny", "prompt": "hi", "max_tokens": 40, "n": 2}
    task = asyncio.create_task(gateway.post("/v1/completions", body))
    await until(lambda: len(gateway.fleet.generations) == 2, "both at the fleet")
    first, second = gateway.fleet.generations
    say(first, gateway.ids("wrong sums"))
    say(second, gateway.ids("right"), "stop")
    await asyncio.sleep(0)
    first.start_over()
    say(first, gateway.ids("good"), "stop")
    answer = (await task).json()
    assert [choice["text"] for choice in answer["choices"]] == ["good", "right"]
    assert answer["usage"]["completion_tokens"] == len(first.emitted) + len(second.emitted)
