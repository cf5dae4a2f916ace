"""What is asked of each server, and what is read out of streams that real servers sent (llama.cpp of
``xllamacpp``, vLLM 0.32); SGLang's are written after its documentation."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from infer_engine.foreign.not_understood import NotUnderstoodError
from infer_engine.model.logprobs import TokenLogprobs
from infer_engine.model.sampling import Constraint, Sampling
from infer_engine.protocol import FinishReason
from infer_engine.replica.upstream.constraints import CONTINUED, alternatives
from infer_engine.replica.upstream.dialect import Ask, Dialect, parameters
from infer_engine.replica.upstream.events import MAX_LINE_BYTES, SaidError, events
from infer_engine.replica.upstream.llamacpp import LlamaCpp
from infer_engine.replica.upstream.sglang import Sglang
from infer_engine.replica.upstream.stream import retry_after_s
from infer_engine.replica.upstream.vllm import Vllm

RECORDED = Path(__file__).parent / "recorded"
#: Of SmolLM2's vocabulary: what each text of the recorded stream is cut into.
CHARACTERS = {
    "한": [33085, 246],
    "국": [181, 130, 251],
    "😀": [10813, 242, 218],
    " 😀": [40303, 218],
    "🦄": [10813, 116, 222],
    "漢": [177, 137, 112],
    "😀🦄漢字한국": [],
}


def read_all(dialect: Dialect, data: bytes, size: int = 7) -> tuple[list[int], list[Any], list[FinishReason]]:
    """In pieces of ``size`` bytes, as a network may cut them."""

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), size):
            yield data[start : start + size]

    async def read() -> tuple[list[int], list[Any], list[FinishReason]]:
        tokens: list[int] = []
        logprobs: list[Any] = []
        ends: list[FinishReason] = []
        reader = dialect.reader()
        async for event in events(chunks()):
            heard = reader.read(event)
            tokens += heard.tokens
            logprobs += heard.logprobs
            ends += [heard.finish] if heard.finish is not None else []
        return tokens, logprobs, ends

    return asyncio.run(read())


def found(text: str, count: int, last: int) -> list[int] | None:
    tokens = CHARACTERS.get(text)
    return tokens if tokens is not None and len(tokens) == count and tokens[-1] == last else None


def never(text: str, count: int, last: int) -> None:
    return None


def test_a_stream_of_llamacpp_ends_where_the_model_does() -> None:
    tokens, _, ends = read_all(LlamaCpp(never, 2048), (RECORDED / "llamacpp-eos.sse").read_bytes())
    assert tokens == [49, 2403, 89, 411, 8966, 30, 2]
    assert ends == ["stop"]


def test_tokens_that_llamacpp_leaves_out_within_characters_are_found_again() -> None:
    data = (RECORDED / "llamacpp-characters.sse").read_bytes()
    tokens, _, ends = read_all(LlamaCpp(found, 2048), data)
    assert ends == ["length"]
    assert tokens[:6] == [36518, 33085, 246, 181, 130, 251]
    assert len(tokens) > data.count(b'"stop":false')


def test_tokens_that_cannot_be_found_again_are_no_stream() -> None:
    with pytest.raises(NotUnderstoodError, match="left 1 tokens out"):
        read_all(LlamaCpp(never, 2048), (RECORDED / "llamacpp-characters.sse").read_bytes())


def test_vllm_tells_every_token_and_how_likely_it_was() -> None:
    tokens, logprobs, ends = read_all(Vllm("m"), (RECORDED / "vllm-characters.sse").read_bytes())
    assert len(tokens) == len(logprobs) == 12
    assert ends == ["length"]
    assert tokens[:6] == [36518, 33085, 246, 181, 130, 251]
    assert logprobs[0] == TokenLogprobs(
        -0.04575328156352043, [36518, 11100], [-0.04575328156352043, -4.878726959228516]
    )


def test_a_stream_of_vllm_ends_where_the_model_does() -> None:
    tokens, _, ends = read_all(Vllm("m"), (RECORDED / "vllm-eos.sse").read_bytes())
    assert tokens == [49, 2403, 89, 411, 8966, 30, 2]
    assert ends == ["stop"]


def sglang(*events: str) -> bytes:
    return b"".join(f"data: {each}\n\n".encode() for each in events) + b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    "told",
    [([5], [5, 6], [5, 6, 7]), ([5], [6], [7]), ([5, 6], [5, 6, 7], [5, 6, 7]), ([5, 6], [7], [])],
    ids=["all so far", "the new ones", "all, several at once", "new, several at once"],
)
def test_sglang_tells_all_tokens_so_far_or_the_new_ones(told: tuple[list[int], ...]) -> None:
    counts = [len(told[0]), len(told[0]) + 1 if len(told[0]) == 1 else 3, 3]
    lines = [
        f'{{"output_ids":{ids},"meta_info":{{"completion_tokens":{count},"finish_reason":{end}}}}}'
        for ids, count, end in zip(told, counts, ("null", "null", '{"type":"stop"}'), strict=True)
    ]
    assert read_all(Sglang(), sglang(*lines)) == ([5, 6, 7], [], ["stop"])


def test_a_hole_in_a_stream_of_sglang_is_seen() -> None:
    with pytest.raises(NotUnderstoodError, match="some are missing"):
        read_all(Sglang(), sglang('{"output_ids":[5],"meta_info":{"completion_tokens":3}}'))


@pytest.mark.parametrize(
    ("dialect", "line"),
    [
        (Vllm("m"), '{"choices":[{"text":"a"}]}'),
        (Sglang(), '{"text":"a","meta_info":{}}'),
        (LlamaCpp(never, 9), '{"content":"a","stop":false}'),
        (LlamaCpp(never, 9), '{"content":"a","tokens":["a"],"stop":false}'),
        (Vllm("m"), '{"choices":[{"text":"a","token_ids":[-1]}]}'),
    ],
)
def test_a_server_that_tells_no_token_ids_is_not_served(dialect: Dialect, line: str) -> None:
    with pytest.raises(NotUnderstoodError, match="token ids"):
        read_all(dialect, f"data: {line}\n\n".encode())


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ('data: {"error":{"message":"boom","code":503}}', 503),
        ('data: {"error":"boom"}', 500),
        ('error: {"message":"boom","code":400}', 400),
        ('data: {"choices":[{"token_ids":[],"finish_reason":"abort"}]}', 500),
    ],
)
def test_what_a_server_says_went_wrong_is_heard(line: str, status: int) -> None:
    with pytest.raises(SaidError) as said:
        read_all(Vllm("m"), line.encode() + b"\n\n")
    assert said.value.status == status


def test_nonsense_and_endless_lines_are_no_stream() -> None:
    with pytest.raises(NotUnderstoodError, match="no JSON"):
        read_all(Vllm("m"), b"data: {nonsense\n")
    with pytest.raises(NotUnderstoodError, match="longer than"):
        read_all(Vllm("m"), b"data: " + b"x" * (MAX_LINE_BYTES + 9), size=1 << 16)


def test_pieces_of_a_byte_each_make_the_same_events_and_keep_nobody_waiting() -> None:
    data = b'data: {"a": 1}\n\n: nothing\r\n\r\ndata: {"a": 2}\n' * 20

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(len(data)):
            yield data[at : at + 1]

    async def read() -> tuple[list[Any], bool]:
        others_turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(others_turn.set)
        return [event async for event in events(chunks())], others_turn.is_set()

    assert asyncio.run(read()) == ([{"a": 1}, {"a": 2}] * 20, True)


ASK = Ask(
    prompt=[1, 2, 3],
    max_tokens=5,
    min_tokens=2,
    sampling=Sampling(temperature=0.5, top_k=0, seed=-7, logit_bias={9: -1.5}, logprobs=3),
    stop_token_ids=(2, 11),
    ends=False,
)


def test_what_each_server_is_asked() -> None:
    vllm = Vllm("theirs").body(ASK)
    assert (vllm["model"], vllm["prompt"], vllm["max_tokens"], vllm["min_tokens"]) == (
        "theirs",
        [1, 2, 3],
        5,
        2,
    )
    assert vllm["return_token_ids"]
    assert vllm["stream"]
    assert vllm["ignore_eos"]
    assert (vllm["top_k"], vllm["logit_bias"], vllm["logprobs"]) == (-1, {"9": -1.5}, 3)
    assert vllm["stop_token_ids"] == [2, 11]
    assert vllm["seed"] >= 0
    llamacpp = LlamaCpp(never, 2048).body(ASK)
    assert (llamacpp["prompt"], llamacpp["n_predict"], llamacpp["top_k"]) == ([1, 2, 3], 5, 0)
    assert llamacpp["return_tokens"]
    assert llamacpp["ignore_eos"]
    assert 0 <= llamacpp["seed"] < 0xFFFFFFFF
    assert (llamacpp["logit_bias"], llamacpp["repeat_last_n"]) == ([[9, -1.5]], 2048)
    sglang = Sglang().body(ASK)
    assert sglang["input_ids"] == [1, 2, 3]
    assert sglang["stream"]
    assert sglang["sampling_params"]["max_new_tokens"] == 5
    assert sglang["sampling_params"]["min_new_tokens"] == 2
    assert 0 <= sglang["sampling_params"]["sampling_seed"] < 1 << 63
    assert "sampling_seed" not in Sglang(seeds=False).body(ASK)["sampling_params"]


def test_parameters_that_some_server_lacks_are_known_by_the_names_that_clients_use() -> None:
    assert parameters(Sampling()) == set()
    wanted = parameters(
        Sampling(
            logprobs=0, min_tokens=1, logit_bias={1: 1.0}, constraint=Constraint(kind="regex", source="a")
        )
    )
    assert wanted == {"logprobs", "min_tokens", "logit_bias", "structured_outputs.choice"}
    schema = Sampling(constraint=Constraint(kind="json_schema", source='{"type":"object"}'))
    assert parameters(schema) == {"response_format", "response_format with type"}
    assert parameters(schema, 1) - parameters(schema) == {CONTINUED}


SCHEMA = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("constraint", "vllm", "sglang", "llamacpp"),
    [
        (
            Constraint(kind="json_schema", source=json.dumps(SCHEMA)),
            {"structured_outputs": {"json": SCHEMA}},
            {"json_schema": json.dumps(SCHEMA)},
            {"json_schema": SCHEMA},
        ),
        (
            Constraint(kind="regex", source='yes\\.|no"'),
            {"structured_outputs": {"regex": 'yes\\.|no"'}},
            {"regex": 'yes\\.|no"'},
            {"grammar": 'root ::= "yes." | "no\\x22"'},
        ),
    ],
)
def test_what_an_answer_must_match_is_asked_in_each_servers_words(
    constraint: Constraint, vllm: dict[str, Any], sglang: dict[str, Any], llamacpp: dict[str, Any]
) -> None:
    def bodies(sampling: Sampling) -> list[dict[str, Any]]:
        ask = Ask(prompt=[1], max_tokens=9, sampling=sampling)
        return [
            Vllm("m").body(ask),
            Sglang().body(ask)["sampling_params"],
            LlamaCpp(never, 2048).body(ask),
        ]

    free, bound = bodies(Sampling()), bodies(Sampling(constraint=constraint))
    more = [{key: there[key] for key in there.keys() - here} for here, there in zip(free, bound, strict=True)]
    assert more == [vllm, sglang, llamacpp]


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("yes|no", ["yes", "no"]),
        (r"a\.b|\(c\)|d\|e", ["a.b", "(c)", "d|e"]),
        ("a+", None),
        (r"\d", None),
        ("[ab]", None),
        ("a|", None),
        ("a\\", None),
    ],
)
def test_texts_are_told_from_other_expressions(pattern: str, texts: list[str] | None) -> None:
    assert alternatives(pattern) == texts


@pytest.mark.parametrize(
    ("schema", "llamacpp", "sglang"),
    [
        (SCHEMA, set(), set()),
        ({"type": "integer", "minimum": 3}, set(), set()),
        ({"type": "number", "minimum": 3}, {"minimum of a number"}, set()),
        ({"type": "integer", "multipleOf": 3}, {"multipleOf"}, {"multipleOf"}),
        ({"type": "string", "format": "date"}, set(), set()),
        ({"type": "string", "format": "email"}, {"format email"}, set()),
        ({"maxLength": 3}, {"maxLength without the type string"}, set()),
        ({"type": "string", "maxLength": 3}, set(), set()),
        ({"type": "array", "minItems": 2}, {"minItems without items"}, set()),
        ({"type": "array", "minItems": 2, "items": {}}, set(), set()),
        ({"type": "array", "maxItems": 10_001, "items": {}}, {"maxItems above 10,000"}, set()),
        ({"anyOf": [{"type": "null"}], "title": "x"}, set(), set()),
        ({"anyOf": [{"type": "null"}], "enum": [1]}, {"anyOf beside other keywords"}, set()),
        ({"allOf": [{}, {}]}, {"allOf"}, {"allOf of several"}),
        (
            {"type": "object", "properties": {"not": {}, "multipleOf": {"enum": [{"not": 1}]}}},
            set(),
            set(),
        ),
        (
            {"type": "object", "required": ["a"]},
            {"required of what properties does not name"},
            set(),
        ),
    ],
)
def test_what_a_server_would_leave_out_of_a_schema_it_cannot_be_asked_for(
    schema: dict[str, Any], llamacpp: set[str], sglang: set[str]
) -> None:
    wanted = parameters(Sampling(constraint=Constraint(kind="json_schema", source=json.dumps(schema))))
    assert wanted & LlamaCpp.lacks == {f"response_format with {each}" for each in llamacpp}
    assert wanted & Sglang.lacks == {f"response_format with {each}" for each in sglang}
    assert not wanted & Vllm.lacks


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (None, None),
        ("7", 7.0),
        ("999999", 30.0),
        ("soon", None),
        ("Thu, 01 Jan 1970 00:00:12 GMT", 2.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("9" * 99, None),
    ],
)
def test_when_to_ask_again_is_believed_within_bounds(told: str | None, wanted: float | None) -> None:
    assert retry_after_s(told, lambda: 10.0) == wanted
