"""The client that all servers are measured with: its reading of streams, and a real server."""

import pytest
from infer_engine.benchmark import long_prompt, served
from infer_engine.benchmark.batching import decode_rate
from infer_engine.benchmark.client import Answer, Client, Load, check, read_line
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.long_prompt import interfered
from infer_engine.benchmark.results import Result
from infer_engine.benchmark.served import ALONE, USEFUL, measure_client
from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.stragglers import asks_of, batches_of
from infer_engine.benchmark.workload import Ask
from support.server import serving

ASK = Ask((1, 2, 3), 2)
USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'


def answered(*lines: str) -> Answer:
    answer = Answer(ASK, 10.0)
    for number, line in enumerate(lines):
        read_line(line, answer, 11.0 + number)
    return answer


def test_only_frames_with_text_are_moments_of_tokens() -> None:
    answer = answered(
        ": ping",
        'data: {"choices":[{"text":""}]}',
        "",
        'data: {"choices":[{"text":"a"}]}',
        'data: {"choices":[{"text":"b"}],"usage":null}',
        'data: {"choices":[{"text":"","finish_reason":"length"}]}',
        USAGE,
        "data: [DONE]",
    )
    check(answer)
    assert answer.frames_s == [14.0, 15.0]
    assert answer.ttft_s == 4.0
    assert answer.gaps_s == [1.0]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (['data: {"error":{"message":"full"}}'], "full"),
        (["data: {"], "not JSON"),
        (["<html>"], "not a server-sent event"),
    ],
)
def test_what_is_no_answer_is_an_error(lines: list[str], says: str) -> None:
    with pytest.raises(BenchError, match=says):
        answered(*lines)


def test_another_number_of_tokens_is_not_measured() -> None:
    text = 'data: {"choices":[{"text":"a"}]}'
    with pytest.raises(BenchError, match="2 tokens were asked for, the server counts 1"):
        check(answered(text, 'data: {"usage":{"prompt_tokens":3,"completion_tokens":1}}'))
    with pytest.raises(BenchError, match="3 tokens was sent, the server counts 4"):
        check(answered(text, 'data: {"usage":{"prompt_tokens":4,"completion_tokens":2}}'))
    with pytest.raises(BenchError, match="counts None"):
        check(answered(text))


def test_useful_tokens_are_those_asked_for_from_the_first_request_to_the_last_end() -> None:
    first, second = Answer(ASK, 10.0, [11.0], 12.0), Answer(Ask((1,), 6), 10.5, [11.5], 14.0)
    assert Load([first, second]).useful_tokens_per_s == 2.0


def test_the_decode_rate_counts_only_while_all_decode() -> None:
    early = Answer(ASK, 0.0, [1.0, 2.0, 3.0, 4.0], 4.0, output_tokens=4)
    late = Answer(ASK, 0.0, [2.0, 3.0, 4.0, 5.0], 5.0, output_tokens=4)
    assert decode_rate(Load([early, late])) == 2.0
    with pytest.raises(BenchError, match="before the last one began"):
        decode_rate(Load([early, Answer(ASK, 0.0, [5.0, 6.0], 6.0, output_tokens=2)]))


def test_static_batches_keep_the_order_and_padding_makes_all_as_long_as_the_longest() -> None:
    asks = asks_of(Setup(), 0)
    batches = batches_of(asks, padded=False)
    assert [ask for batch in batches for ask in batch] == asks
    for batch, padded in zip(batches, batches_of(asks, padded=True), strict=True):
        assert {ask.output_tokens for ask in padded} == {max(ask.output_tokens for ask in batch)}
        assert [ask.prompt for ask in padded] == [ask.prompt for ask in batch]


async def interfered_in_time(client: Client, setup: Setup) -> tuple[float, float]:
    """A tiny model's streams can be over before a busy machine has sent the long prompt: that is told, and
    then they are asked for again."""
    for repeat in range(10):
        try:
            return await interfered(client, setup, repeat)
        except BenchError as error:
            if "a stream ended" not in str(error):
                raise
    raise AssertionError("the streams were over each time")


async def measured_in_time(url: str, model: str, setup: Setup, said: list[str]) -> list[Result]:
    """A busy machine can read all of a tiny model's short answers in one frame each: no gap is in any."""
    for _ in range(10):
        said.clear()
        try:
            return await measure_client(Client(url, model), setup, "ours")
        except ValueError as error:
            if "a percentile of nothing" not in str(error):
                raise
    raise AssertionError("no answer came in several frames")


async def test_a_real_server_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    # A tiny model is done with the usual ones before a busy machine has sent the long prompt.
    monkeypatch.setattr(long_prompt, "STREAM_OUTPUT_TOKENS", 1_800)
    # And a few tokens come in one frame there, between which there is no gap.
    monkeypatch.setattr(served, "ALONE_OUTPUT_TOKENS", 1_600)
    said: list[str] = []
    with serving(replica={"kv_blocks": 1_024}) as server:
        with server.gateway() as gateway:
            model = gateway.get("/v1/models").json()["data"][0]["id"]
        setup = Setup(repeats=2, shrink=16, vocabulary=256, say=said.append)
        results = await measured_in_time(server.gateway_url, model, setup, said)
        by_name = {each.measure: each for each in results}
        assert len(by_name[USEFUL].samples) == len(by_name[ALONE].samples) == 2
        assert all(each.value is not None and each.value > 0 for each in results)
        assert {each.subject for each in results} == {"ours"}
        assert len(said) == 2
        async with Client(server.gateway_url, model) as client:
            worst_s, ttft_s = await interfered_in_time(client, setup)
            assert worst_s > 0
            assert ttft_s > 0
            with pytest.raises(BenchError, match="answered 400"):
                await client.load([Ask((10**9,), 4)], 30.0)
        assert not server.errors
