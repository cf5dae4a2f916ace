"""Several choices, logprobs and the finer points of stopping, over a fleet that says what it is told to."""

import asyncio
import json
from typing import Any

import pytest
from infer_engine.model.logprobs import TokenLogprobs
from support.gateway import CHAT, TEXT, Gateway, until
from support.scripted_fleet import say

pytestmark = pytest.mark.asyncio(loop_scope="session")


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": "hi", "max_tokens": 40, **fields}


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 40, **fields}


def documents(body: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def begun(gateway: Gateway, path: str, body: dict[str, Any]) -> Any:
    task = asyncio.create_task(gateway.post(path, body))
    await until(lambda: len(gateway.fleet.generations) == body.get("n", 1), "all choices at the fleet")
    return task


async def test_choices_are_answered_in_their_order_whichever_ends_first(gateway: Gateway) -> None:
    task = await begun(gateway, TEXT, ask(n=3, best_of=3, seed=5))
    generations = gateway.fleet.generations
    assert generations[0].spec.sampling.seed == 5
    assert len({each.spec.sampling.seed for each in generations}) == 3
    for index in (2, 0, 1):
        say(generations[index], gateway.ids(f"text {index}"), "length" if index else "stop")
    answer = (await task).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert [choice["text"] for choice in answer["choices"]] == ["text 0", "text 1", "text 2"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "length", "length"]
    assert answer["usage"]["prompt_tokens"] == len(generations[0].spec.prompt)
    assert answer["usage"]["completion_tokens"] == sum(len(each.emitted) for each in generations)


async def test_streams_of_choices_are_interleaved_by_index(gateway: Gateway) -> None:
    task = await begun(gateway, CHAT, chat(n=2, stream=True, stream_options={"include_usage": True}))
    first, second = gateway.fleet.generations
    say(second, gateway.ids("bb"))
    say(first, gateway.ids("a"))
    await asyncio.sleep(0)
    say(second, gateway.ids("b"), "stop")
    say(first, gateway.ids("aa"), "length")
    chunks = documents((await task).text)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    for index, text, finish in ((0, "aaa", "length"), (1, "bbb", "stop")):
        own = [choice for choice in choices if choice["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(choice["delta"].get("content", "") for choice in own) == text
        assert [choice["finish_reason"] for choice in own][-1] == finish
    assert chunks[-1]["usage"]["completion_tokens"] == len(first.emitted) + len(second.emitted)


async def test_a_stop_string_ends_its_own_choice_only(gateway: Gateway) -> None:
    task = await begun(gateway, TEXT, ask(n=2, stop="END"))
    first, second = gateway.fleet.generations
    say(first, gateway.ids("oneEND more"))
    await until(lambda: gateway.fleet.cancelled, "the first to be stopped")
    assert [(each.id, each.reason) for each in gateway.fleet.cancelled] == [(first.id, "stop")]
    say(second, gateway.ids("two"), "length")
    answer = (await task).json()
    assert [(each["text"], each["finish_reason"]) for each in answer["choices"]] == [
        ("one", "stop"),
        ("two", "length"),
    ]


async def test_when_the_client_leaves_all_choices_end(gateway: Gateway) -> None:
    _, writer = await gateway.raw(TEXT, ask(n=3, stream=True))
    await until(lambda: len(gateway.fleet.generations) == 3, "all choices")
    writer.close()
    await until(lambda: len(gateway.fleet.cancelled) == 3, "all choices to be cancelled")
    assert {each.code for each in gateway.fleet.cancelled} == {"client_disconnected"}


@pytest.mark.parametrize("stream", [False, True])
async def test_one_that_ends_badly_ends_the_request(gateway: Gateway, stream: bool) -> None:
    task = await begun(gateway, TEXT, ask(n=2, stream=stream))
    first, second = gateway.fleet.generations
    say(first, gateway.ids("one"))
    if stream:
        await asyncio.sleep(0)
    say(second, [], "error", error="it broke", error_code="constraint_failed")
    response = await task
    assert "it broke" in response.text
    assert "[DONE]" not in response.text
    assert first.finish_reason == "cancelled"


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
async def test_the_first_tokens_are_not_searched_for_stop_strings(gateway: Gateway, cut: int) -> None:
    task = await begun(gateway, TEXT, ask(stop=["STOP"], min_tokens=5, include_stop_str_in_output=True))
    (generation,) = gateway.fleet.generations
    assert len(gateway.ids("STOP.")) == 5
    # The first lies in the first five tokens; only what begins after them counts.
    say(generation, gateway.ids("STOP."[:cut]))
    await asyncio.sleep(0)
    say(generation, gateway.ids("STOP.aSTOPb")[cut:], "length")
    choice = (await task).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("STOP.aSTOP", "stop")


# --- logprobs --------------------------------------------------------------------------------------------


def tell(generation: Any, tokens: list[int], finish: str | None = None) -> None:
    for token in tokens:
        generation.append(token, 0.0, TokenLogprobs(-token / 100, [token, 5], [-token / 100, float("-inf")]))
    generation.finish_reason = finish
    generation.wake()


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_logprobs_have_bytes_and_never_run_ahead_of_the_text(
    gateway: Gateway, stream: bool
) -> None:
    task = await begun(gateway, CHAT, chat(logprobs=True, top_logprobs=2, stop="é!", stream=stream))
    (generation,) = gateway.fleet.generations
    assert generation.spec.sampling.logprobs == 2
    ids = gateway.ids("aé?é!zz")
    for token in ids:
        tell(generation, [token])
        await asyncio.sleep(0)
    response = await task
    if stream:
        choices = [choice for chunk in documents(response.text) for choice in chunk["choices"]]
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        entries: list[Any] = []
        shown = b""
        for choice in choices:
            shown += choice["delta"].get("content", "").encode()
            entries += choice["logprobs"]["content"] if choice["logprobs"] else []
            assert b"".join(bytes(each["bytes"]) for each in entries) == shown
    else:
        choice = response.json()["choices"][0]
        text, entries = choice["message"]["content"], choice["logprobs"]["content"]
    assert text == "aé?"
    assert b"".join(bytes(each["bytes"]) for each in entries) == "aé?".encode()
    assert [each["token"] for each in entries] == ["a", "\ufffd", "\ufffd", "?"]
    assert entries[0]["logprob"] == -ids[0] / 100
    assert [each["logprob"] for each in entries[0]["top_logprobs"]] == [-ids[0] / 100, -9999.0]
    # What was read is kept no longer.
    assert not generation.logprobs.keys() & set(range(len(entries)))


async def test_completion_logprobs_have_their_own_shape(gateway: Gateway) -> None:
    task = await begun(gateway, TEXT, ask(logprobs=2))
    (generation,) = gateway.fleet.generations
    ids = [*gateway.ids("aé"), *sorted(gateway.tokenizer.stop_ids)[:1]]
    tell(generation, ids, "stop")
    answer = (await task).json()
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs["tokens"][:3] == ["a", "bytes:\\xc3", "bytes:\\xa9"]
    assert logprobs["text_offset"] == [0, 1, 1, 2]
    assert logprobs["token_logprobs"] == [-token / 100 for token in ids]
    assert logprobs["top_logprobs"][0]["a"] == -ids[0] / 100
    assert len(logprobs["tokens"]) == answer["usage"]["completion_tokens"]


async def test_without_being_asked_nothing_is_told(gateway: Gateway) -> None:
    task = await begun(gateway, CHAT, chat())
    (generation,) = gateway.fleet.generations
    assert generation.spec.sampling.logprobs is None
    say(generation, gateway.ids("x"), "stop")
    assert (await task).json()["choices"][0]["logprobs"] is None
