"""Sampling and structured output from the official client to a real replica process and back."""

import asyncio
import json
import re
from typing import Any

import openai
import pytest
from infer_engine.protocol import Event
from support.gateway import until
from support.gateway_on_fleet import Served

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog"]},
        "legs": {"type": "integer", "minimum": 0, "maximum": 8},
    },
    "required": ["kind", "legs"],
    "additionalProperties": False,
}
ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "An animal?"}]}


async def chat(served: Served, **fields: Any) -> Any:
    return await served.async_client.chat.completions.create(**{**ASK, **fields})


async def text(served: Served, **fields: Any) -> Any:
    return await served.async_client.completions.create(
        **{"model": "tiny", "prompt": "Once upon a time there was", "max_tokens": 24, **fields}
    )


async def test_json_that_matches_its_schema_beside_one_that_is_free(served: Served) -> None:
    format_ = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}
    bound, free = await asyncio.gather(
        chat(served, response_format=format_, max_tokens=300, seed=3),
        chat(served, max_tokens=24, seed=3),
    )
    value = json.loads(bound.choices[0].message.content)
    assert value["kind"] in ("cat", "dog")
    assert 0 <= value["legs"] <= 8
    assert bound.choices[0].finish_reason == "stop"
    alone = await chat(served, max_tokens=24, seed=3)
    assert free.choices[0].message.content == alone.choices[0].message.content
    await served.idle()


@pytest.mark.parametrize(
    ("structured", "expected"),
    [
        ({"regex": "[0-9]{3}-(ab|cd)"}, r"[0-9]{3}-(ab|cd)"),
        ({"choice": ["yes/no", "a.b", "é[1]\n", '<"x">']}, r"yes/no|a\.b|é\[1\]\n|<\"x\">"),
        ({"json": {"enum": [17, "x"]}}, r'17|"x"'),
    ],
)
async def test_structured_outputs(served: Served, structured: dict[str, Any], expected: str) -> None:
    stream = await text(served, stream=True, extra_body={"structured_outputs": structured}, temperature=2.0)
    answer = "".join([chunk.choices[0].text async for chunk in stream])
    assert re.fullmatch(expected, answer), answer


async def test_json_mode_on_both_endpoints(served: Served) -> None:
    format_ = {"type": "json_object"}
    answer = (await chat(served, response_format=format_, max_tokens=40)).choices[0]
    assert answer.message.content.startswith("{")
    answer = (await text(served, extra_body={"response_format": format_})).choices[0]
    assert answer.text.startswith("{")


async def test_a_grammar_that_grows_beyond_its_limits_ends_its_request_alone(served: Served) -> None:
    wide = {"properties": {f"k{number}": {"type": "string"} for number in range(1500)}, "type": "object"}
    format_ = {"type": "json_schema", "json_schema": {"name": "wide", "schema": wide}}

    async def ask() -> Any:
        with pytest.raises(openai.BadRequestError) as raised:
            await chat(served, response_format=format_, max_tokens=40)
        return raised.value

    error, other = await asyncio.gather(ask(), chat(served, max_tokens=24))
    assert error.code in ("constraint_failed", "invalid_constraint")
    assert other.usage.completion_tokens > 0
    await served.idle()


async def test_the_first_of_several_choices_is_what_it_is_alone(served: Served) -> None:
    """One prompt, computed once: the choices share its blocks until each writes its own."""
    asked = {"seed": 11, "temperature": 1.0, "max_tokens": 20, "extra_body": {"ignore_eos": True}}
    alone = await text(served, **asked)
    before = len(served.happened)
    several = await text(served, **asked, n=3)
    streamed: list[str] = ["", "", ""]
    async for chunk in await text(served, **asked, n=3, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    texts = [choice.text for choice in several.choices]
    assert texts[0] == alone.choices[0].text
    assert texts == streamed
    assert len(set(texts)) == 3
    assert several.usage.prompt_tokens == alone.usage.prompt_tokens
    assert several.usage.completion_tokens == 60
    admitted = [
        item.request for item in served.happened[before:] if isinstance(item, Event) and item.kind == "admit"
    ]
    assert len(set(admitted)) == 6
    await served.idle()


async def test_shared_blocks_show_on_the_roster(served: Served) -> None:
    observer = served.fleet.observe("r0", 50.0, blocks=True)
    prompt = [40 + number % 90 for number in range(160)]
    asked = asyncio.create_task(
        text(served, prompt=prompt, n=2, max_tokens=600, extra_body={"ignore_eos": True})
    )

    def shared() -> list[Any]:
        blocks = served.fleet.frame("r0").blocks or []
        return [run for run in blocks if run.refs == 2 and len(run.owners) == 2]

    await until(shared, "blocks of two owners")
    assert sum(run.count for run in shared()) >= 9
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    observer.close()
    await served.idle()


async def test_logprobs_of_a_greedy_answer(served: Served) -> None:
    greedy = await chat(served, temperature=0, max_tokens=12, logprobs=True, top_logprobs=4)
    entries = greedy.choices[0].logprobs.content
    assert len(entries) == greedy.usage.completion_tokens == 12
    for entry in entries:
        assert len(entry.top_logprobs) == 4
        assert entry.logprob == entry.top_logprobs[0].logprob < 0
    told = b"".join(bytes(entry.bytes) for entry in entries).decode(errors="replace")
    assert told == greedy.choices[0].message.content
    legacy = await text(served, temperature=0, logprobs=2)
    logprobs = legacy.choices[0].logprobs
    assert logprobs.text_offset == sorted(logprobs.text_offset)
    assert logprobs.text_offset[0] == 0
    assert all(2 <= len(top) <= 3 for top in logprobs.top_logprobs)
    assert len(logprobs.tokens) == legacy.usage.completion_tokens


async def test_bias_stop_ids_and_a_minimum(served: Served) -> None:
    token = served.gateway.ids("x")[0]
    biased = {"logit_bias": {str(token): 100}, "max_tokens": 9}
    assert (await chat(served, **biased)).choices[0].message.content == "x" * 9
    stopped = await chat(served, **biased, extra_body={"stop_token_ids": [token]})
    assert (stopped.usage.completion_tokens, stopped.choices[0].finish_reason) == (1, "stop")
    later = await chat(served, **biased, extra_body={"stop_token_ids": [token], "min_tokens": 4})
    assert (later.usage.completion_tokens, later.choices[0].finish_reason) == (5, "stop")
    assert "x" not in later.choices[0].message.content[:-1]
