"""Whatever arrives, the answer is a request or a 400 that can be sent."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from infer_engine.gateway.chat_request import read_chat_request
from infer_engine.gateway.completion_request import read_completion_request
from infer_engine.gateway.errors import ApiError
from infer_engine.gateway.fields import Fields, parse_object
from infer_engine.gateway.params import Bounds
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.model.sampling import Sampling

CONTEXT, VOCABULARY = 2048, 269
BOUNDS = Bounds(context_length=CONTEXT, vocabulary_size=VOCABULARY, settings=GatewaySettings())
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**300, max_value=10**400),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(["\ud800", "user", "text", "x" * 300, ""]),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
PARTS = st.fixed_dictionaries({}, optional={"type": JSON | st.just("text"), "text": JSON})
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {}, optional={"role": JSON | st.just("user"), "content": JSON | st.lists(PARTS, max_size=3)}
    ),
    max_size=3,
)
COMMON = dict.fromkeys(
    (
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "stop",
        "n",
        "stream",
        "stream_options",
        "ignore_eos",
        "min_tokens",
        "tier",
        "user",
        "logit_bias",
        "response_format",
        "best_of",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "stop_token_ids",
        "include_stop_str_in_output",
        "logprobs",
        "top_logprobs",
        "structured_outputs",
        "guided_regex",
    ),
    JSON,
)
COMMON["logit_bias"] |= st.dictionaries(st.integers().map(str) | st.text(max_size=3), JSON, max_size=3)
COMMON["response_format"] |= st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "json_object", "json_schema"])},
    optional={"json_schema": JSON | st.fixed_dictionaries({"schema": JSON})},
)
COMMON["structured_outputs"] |= st.dictionaries(
    st.sampled_from(["json", "json_object", "regex", "choice"]), JSON, max_size=2
)


def check(error: ApiError) -> None:
    assert error.status == 400
    body = json.dumps(error.body)
    assert json.loads(body)["error"]["message"] == error.message
    body.encode("utf-8")
    assert len(error.message) < 1_000
    assert error.response().status_code == 400


@settings(max_examples=200)
@given(body=st.binary(max_size=64))
def test_any_bytes(body: bytes) -> None:
    check_parsing(body)


@settings(max_examples=100)
@given(value=JSON)
def test_any_json(value: Any) -> None:
    check_parsing(json.dumps(value).encode("utf-8", "surrogatepass"))


def check_parsing(body: bytes) -> None:
    try:
        parse_object(body)
    except ApiError as error:
        check(error)


@settings(max_examples=150)
@given(
    values=st.fixed_dictionaries(
        {"model": JSON | st.just("tiny"), "messages": JSON | MESSAGES, "prompt": JSON}, optional=COMMON
    )
)
def test_any_values_in_known_fields(values: dict[str, Any]) -> None:
    for read in (
        lambda: read_chat_request(Fields(values), BOUNDS),
        lambda: read_completion_request(Fields(values), BOUNDS),
    ):
        try:
            request = read()
        except ApiError as error:
            check(error)
            continue
        # What was accepted is within bounds.
        assert request.params.max_tokens is None or 1 <= request.params.max_tokens <= CONTEXT
        assert 0 <= request.params.sampling.temperature <= 2
        assert 0 < request.params.sampling.top_p <= 1
        assert len(request.params.stop) <= 16
        assert 1 <= request.params.choices <= 8
        # And goes through the wire as it is.
        sampling = request.params.sampling
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(sampling), type=Sampling) == sampling


@pytest.mark.parametrize(
    ("given_", "expected"),
    [(-1, 0), (0, 0), (50, 50), (None, 0)],
)
def test_top_k_off_is_zero(given_: int | None, expected: int) -> None:
    values = {"model": "tiny", "prompt": "x", "top_k": given_}
    request = read_completion_request(Fields(values), BOUNDS)
    assert request.params.sampling.top_k == expected


def test_a_seed_is_drawn_where_none_is_given() -> None:
    def seed(**fields: Any) -> int:
        values = {"model": "tiny", "prompt": "x", **fields}
        return read_completion_request(Fields(values), BOUNDS).params.sampling.seed

    assert seed(seed=-5) == -5
    assert len({seed() for _ in range(5)}) == 5
