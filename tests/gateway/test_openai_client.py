"""The official client against the gateway on a real fleet: a replica process with a tiny model."""

from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from support.gateway import CHAT, until
from support.gateway_on_fleet import KV_BLOCKS, LONG_TOKENS, MAX_RUNNING, Served

pytestmark = pytest.mark.asyncio(loop_scope="session")

GREEDY: dict[str, Any] = {"temperature": 0, "model": "tiny", "max_tokens": 24}
ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me a thing"}]


async def test_chat_streamed_and_whole_are_the_same_answer(served: Served) -> None:
    whole = await served.call(lambda client: client.chat.completions.create(messages=ASK, **GREEDY))
    assert whole.object == "chat.completion"
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 24

    def stream(client: openai.OpenAI) -> list[Any]:
        return list(
            client.chat.completions.create(
                messages=ASK, stream=True, stream_options={"include_usage": True}, **GREEDY
            )
        )

    *chunks, last = await served.call(stream)
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "length"
    assert last.choices == []
    assert last.usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1
    await served.idle()


async def test_completions_with_the_async_client(served: Served) -> None:
    client = served.async_client
    whole = await client.completions.create(prompt="Once", **GREEDY)
    assert whole.object == "text_completion"
    ids = served.gateway.ids("Once")
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == len(ids)
    texts = [
        chunk.choices[0].text
        async for chunk in await client.completions.create(prompt="Once", stream=True, **GREEDY)
    ]
    assert "".join(texts) == whole.choices[0].text
    by_ids = await client.completions.create(prompt=ids, **GREEDY)
    assert by_ids.choices[0].text == whole.choices[0].text
    as_list = await client.completions.create(prompt=["Once"], **GREEDY)
    assert as_list.choices[0].text == whole.choices[0].text
    assert (await client.completions.create(prompt="Once", model="tiny", seed=1)).usage is not None


async def test_a_seed_repeats_and_content_parts_are_text(served: Served) -> None:
    client = served.async_client
    drawn: dict[str, Any] = {"model": "tiny", "max_tokens": 16, "temperature": 1.5, "seed": 7}
    parts: Any = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Tell me "}, {"type": "text", "text": "a thing"}],
        }
    ]
    one = await client.chat.completions.create(messages=ASK, **drawn)
    two = await client.chat.completions.create(messages=parts, **drawn)
    assert one.choices[0].message.content == two.choices[0].message.content
    other = await client.chat.completions.create(messages=ASK, **{**drawn, "seed": 8})
    assert other.choices[0].message.content != one.choices[0].message.content


async def test_a_stop_string_ends_the_generation_early(served: Served) -> None:
    client = served.async_client
    full = (await client.chat.completions.create(messages=ASK, **{**GREEDY, "max_tokens": 40})).choices[0]
    assert full.message.content is not None
    stop = full.message.content[10:13]
    cut_at = full.message.content.index(stop)
    long: dict[str, Any] = {**GREEDY, "max_tokens": LONG_TOKENS}
    answer = await client.chat.completions.with_raw_response.create(messages=ASK, stop=stop, **long)
    choice = answer.parse().choices[0]
    assert choice.finish_reason == "stop"
    assert choice.message.content == full.message.content[:cut_at]
    request_id = answer.headers["x-request-id"]
    await served.idle()
    finish = served.finish_of(request_id)
    assert finish is not None
    assert finish.reason == "stop"
    assert finish.tokens is not None
    assert finish.tokens < LONG_TOKENS


async def test_what_can_never_fit_is_refused_with_both_numbers(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        await served.async_client.completions.create(prompt=[70] * 2100, **GREEDY)
    assert "2101" in refusal.value.message
    assert str(KV_BLOCKS * 16) in refusal.value.message
    assert refusal.value.code == "never_fits"
    with pytest.raises(openai.BadRequestError, match="prompt 4,080"):
        await served.async_client.completions.create(prompt=[70] * 4080, **GREEDY)
    with pytest.raises(openai.NotFoundError):
        await served.async_client.completions.create(prompt="x", model="other")


async def test_models(served: Served) -> None:
    (model,) = (await served.call(lambda client: client.models.list())).data
    assert (model.id, model.object) == ("tiny", "model")
    assert (await served.call(lambda client: client.models.retrieve("tiny"))).id == "tiny"
    with pytest.raises(openai.NotFoundError):
        await served.call(lambda client: client.models.retrieve("a/b"))


LONG: dict[str, Any] = {
    "model": "tiny",
    "messages": ASK,
    "max_tokens": LONG_TOKENS,
    "temperature": 0,
    "ignore_eos": True,
}


async def test_an_operator_cancels_a_stream(served: Served) -> None:
    extra = {"ignore_eos": True}
    stream = await served.async_client.chat.completions.create(
        messages=ASK, stream=True, extra_body=extra, **{**GREEDY, "max_tokens": LONG_TOKENS}
    )
    chunks = aiter(stream)
    first = await anext(chunks)
    (row,) = served.fleet.rows()
    assert first.id == f"chatcmpl-{row.id}"
    served.fleet.cancel(row.id, reason="cancelled", code="cancelled_by_operator", actor="op")
    with pytest.raises(openai.APIError, match="an operator cancelled the request"):
        [chunk async for chunk in chunks]
    await served.idle()


@pytest.mark.parametrize("stream", [True, False])
async def test_clients_leave_while_queued_and_while_running(served: Served, stream: bool) -> None:
    """Two run, one waits; all three clients leave, the waiting one first. Each is cancelled, no block stays
    used."""

    def states() -> list[str]:
        return sorted(row.state for row in served.fleet.rows())

    body = {**LONG, "stream": stream}
    running = [await served.gateway.raw(CHAT, body) for _ in range(MAX_RUNNING)]
    await until(lambda: states() == ["running"] * MAX_RUNNING, "a full batch")
    _, queued = await served.gateway.raw(CHAT, body)
    await until(lambda: "waiting" in states(), "one waiting")
    (waiting,) = [row for row in served.fleet.rows() if row.state == "waiting"]
    ids = [row.id for row in served.fleet.rows()]
    queued.close()
    await until(lambda: served.finish_of(waiting.id), "the end of the waiting request")
    assert len([row for row in served.fleet.rows() if row.state == "running"]) == MAX_RUNNING
    for _, writer in running:
        writer.close()
    await served.idle()
    for request_id in ids:
        finish = served.finish_of(request_id)
        assert finish is not None
        assert finish.reason == "cancelled"
        row = served.fleet.row(request_id)
        assert row is not None
        assert row.generated_tokens < LONG_TOKENS


async def test_without_max_tokens_an_answer_may_fill_what_an_empty_pool_holds(served: Served) -> None:
    """The context (4,096) is more than the pool (2,048): asking for all of it could only end in an error."""
    # Told to go past its end: a drawn one is over before anyone looks, now and then.
    body = {"model": "tiny", "messages": ASK, "stream": True, "ignore_eos": True}
    _, writer = await served.gateway.raw(CHAT, body)
    await until(lambda: served.fleet.rows(), "the request")
    (row,) = served.fleet.rows()
    assert row.max_tokens == KV_BLOCKS * 16 - row.prompt_tokens
    writer.close()
    await served.idle()


async def test_labels_tenant_and_tier_reach_the_fleet(served: Served) -> None:
    hostile = "x\x7f[31m" + "y" * 300
    headers = {"x-infer-tenant": "team-a", "x-infer-tier": "batch", "x-request-id": hostile}
    answer = await served.gateway.post(CHAT, {**LONG, "max_tokens": 1}, **headers)
    request_id = answer.headers["x-request-id"]
    assert request_id != hostile
    row = served.fleet.row(request_id)
    assert row is not None
    assert (row.tenant, row.tier, row.client_id) == ("team-a", "batch", hostile[:128])
    by_user = await served.gateway.post(CHAT, {**LONG, "max_tokens": 1, "user": "u\u202e1", "tier": "batch"})
    row = served.fleet.row(by_user.headers["x-request-id"])
    assert row is not None
    assert (row.tenant, row.tier, row.client_id) == ("default", "batch", "u\u202e1")
