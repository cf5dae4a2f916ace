"""Everything a client can get wrong: a clear 4xx that names the field, and nothing left behind."""

import asyncio
import json
import re
from typing import Any

import pytest
from infer_engine.fleet.generation import Refusal
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.protocol import Problem
from support.gateway import CHAT, TEXT, Gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, **fields}


def text(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": "hi", "max_tokens": 4, **fields}


async def refused(
    gateway: Gateway, path: str, body: Any, status: int = 400, **headers: str
) -> dict[str, Any]:
    """The error document; asserts that the request got ``status`` and nowhere near the fleet."""
    response = await gateway.post(path, body, **headers)
    assert response.status_code == status, response.text
    assert gateway.fleet.generations == []
    document = response.json()
    assert list(document) == ["error"]
    error: dict[str, Any] = document["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].isascii() or "…" in error["message"]
    assert error["type"] == "invalid_request_error"
    return error


def deep(depth: int) -> bytes:
    return b'{"model": "tiny", "messages": ' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"model": "tiny",}', "not valid JSON"),
        (b"[1, 2]", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"\xff\xfe{}", "not UTF-8 (byte 0)"),
        (b'{"model": "\xc0\xaf"}', "not UTF-8 (byte 11)"),
        (b'{"temperature": NaN}', "NaN is not JSON"),
        (b'{"unknown": [Infinity]}', "Infinity is not JSON"),
        (b'{"unknown": -Infinity}', "-Infinity is not JSON"),
        (b'{"model": "tiny", "model": "other"}', 'the key "model" is given twice'),
        (b'{"unknown": {"a": 1, "a": 1}}', 'the key "a" is given twice'),
        (b'{"seed": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (deep(100_000), "nested too deep"),
        (b'{"a":' * 100_000, "nested too deep"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_bodies_that_are_no_json_object(gateway: Gateway, path: str, body: bytes, says: str) -> None:
    error = await refused(gateway, path, body)
    assert says in error["message"]
    assert error["code"] == "invalid_json"


COMMON = [
    ({"model": None}, "model", "model must be the model's name, not null"),
    ({"model": 7}, "model", "a string"),
    ({"max_tokens": -1}, "max_tokens", "an integer from 1 to 2,048, not -1"),
    ({"max_tokens": 0}, "max_tokens", "not 0"),
    ({"max_tokens": True}, "max_tokens", "not true"),
    ({"max_tokens": 4.0}, "max_tokens", "not 4.0"),
    ({"max_tokens": "4"}, "max_tokens", 'not "4"'),
    ({"max_tokens": 10**30}, "max_tokens", f"not {10**30}"),
    ({"max_tokens": 4, "max_completion_tokens": 5}, "max_tokens", "give one of them"),
    ({"temperature": -0.1}, "temperature", "a number from 0 to 2, not -0.1"),
    ({"temperature": 2.01}, "temperature", "not 2.01"),
    ({"temperature": True}, "temperature", "not true"),
    ({"temperature": "0"}, "temperature", 'not "0"'),
    ({"temperature": 10**400}, "temperature", "a number from 0 to 2"),
    ({"top_p": 0}, "top_p", "a number above 0 up to 1, not 0"),
    ({"top_p": 1.5}, "top_p", "not 1.5"),
    ({"top_k": -2}, "top_k", "an integer from -1 to 1,000,000, not -2"),
    ({"seed": 1.5}, "seed", "not 1.5"),
    ({"seed": 2**63}, "seed", "an integer from"),
    ({"stop": ["a"] * 17}, "stop", "at most 16 strings"),
    ({"stop": "x" * 257}, "stop", "256 characters"),
    ({"stop": [""]}, "stop", 'one of them is ""'),
    ({"stop": [1]}, "stop", "one of them is 1"),
    ({"stop": {"a": 1}}, "stop", "a string or a list"),
    ({"stop": "\ud800"}, "stop", "lone surrogate"),
    ({"stream": "yes"}, "stream", 'true or false, not "yes"'),
    ({"stream": 1}, "stream", "true or false, not 1"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "only allowed when stream is true"),
    ({"stream": True, "stream_options": []}, "stream_options", "an object, not []"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage", "not 1"),
    ({"ignore_eos": "true"}, "ignore_eos", "true or false"),
    ({"tier": "gold"}, "tier", "one of interactive, batch"),
    ({"user": 5}, "user", "a string"),
    ({"user": "u" * 257}, "user", "256 characters"),
    ({"n": 0}, "n", "an integer from 1 to 8, not 0"),
    ({"n": True}, "n", "an integer from 1 to 8, not true"),
    ({"n": 10**9}, "n", "an integer from 1 to 8, not 1000000000"),
    ({"best_of": 3}, "best_of", "the only value allowed is n (1)"),
    ({"n": 2, "best_of": 3}, "best_of", "the only value allowed is n (2)"),
    ({"n": 1, "best_of": True}, "best_of", "the only value allowed is n (1)"),
    ({"min_p": -0.1}, "min_p", "a number from 0 to 1, not -0.1"),
    ({"min_p": "0"}, "min_p", 'not "0"'),
    ({"presence_penalty": 2.5}, "presence_penalty", "a number from -2 to 2, not 2.5"),
    ({"frequency_penalty": -3}, "frequency_penalty", "a number from -2 to 2, not -3"),
    ({"frequency_penalty": 10**400}, "frequency_penalty", "a number from -2 to 2"),
    ({"repetition_penalty": 0}, "repetition_penalty", "a number above 0 up to 10, not 0"),
    ({"repetition_penalty": True}, "repetition_penalty", "not true"),
    ({"logit_bias": [5]}, "logit_bias", "an object of at most 1,024 token ids from 0 to 268"),
    ({"logit_bias": {"269": 1}}, "logit_bias", 'one of them is "269": 1'),
    ({"logit_bias": {"-1": 1}}, "logit_bias", 'one of them is "-1": 1'),
    ({"logit_bias": {"٣": 1}}, "logit_bias", "one of them is"),
    ({"logit_bias": {"9" * 5000: 1}}, "logit_bias", "one of them is"),
    ({"logit_bias": {"5": 100.5}}, "logit_bias", '"5": 100.5'),
    ({"logit_bias": {"5": True}}, "logit_bias", '"5": true'),
    ({"logit_bias": {str(id): 1 for id in range(1025)}}, "logit_bias", "1,025 were given"),
    ({"min_tokens": 5}, "min_tokens", "an integer from 0 to 4, not 5"),
    ({"min_tokens": -1}, "min_tokens", "not -1"),
    ({"stop_token_ids": 5}, "stop_token_ids", "a list of at most 64 token ids from 0 to 268"),
    ({"stop_token_ids": [269]}, "stop_token_ids", "one of them is 269"),
    ({"stop_token_ids": [True]}, "stop_token_ids", "one of them is true"),
    ({"stop_token_ids": [1] * 65}, "stop_token_ids", "at most 64"),
    ({"include_stop_str_in_output": 1}, "include_stop_str_in_output", "true or false, not 1"),
    ({"logprobs": 50}, "logprobs", "not 50"),
    ({"logprobs": "5"}, "logprobs", 'not "5"'),
    ({"echo": True}, "echo", "the only value allowed is false"),
    ({"use_beam_search": True}, "use_beam_search", "the only value allowed is false"),
    ({"allowed_token_ids": [1]}, "allowed_token_ids", "the only value allowed is empty"),
    ({"bad_words": ["a"]}, "bad_words", "the only value allowed is empty"),
    ({"chat_template": "x"}, "chat_template", "the only value allowed is empty"),
    ({"continue_final_message": True}, "continue_final_message", "the only value allowed is false"),
    ({"add_generation_prompt": False}, "add_generation_prompt", "the only value allowed is true"),
    ({"skip_special_tokens": False}, "skip_special_tokens", "the only value allowed is true"),
    ({"truncate_prompt_tokens": 3}, "truncate_prompt_tokens", "the only value allowed is null"),
    ({"prompt_logprobs": 0}, "prompt_logprobs", "the only value allowed is null"),
    ({"response_format": "json_object"}, "response_format", "an object"),
    ({"response_format": {}}, "response_format.type", "is required: one of text, json_object, json_schema"),
    ({"response_format": {"type": "xml"}}, "response_format.type", 'not "xml"'),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "is required"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": "{}"}}},
        "response_format.json_schema.schema",
        "a JSON schema (an object)",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "objekt"}}}},
        "response_format.json_schema.schema",
        "cannot be used: Invalid type: objekt",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["\ud800"]}}}},
        "response_format.json_schema.schema",
        "lone surrogate",
    ),
    ({"structured_outputs": []}, "structured_outputs", "an object, not []"),
    ({"structured_outputs": {}}, "structured_outputs", "exactly one of json, json_object, regex, choice; 0"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "2 were given"),
    ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex", "a string of 1 to 65,536"),
    ({"structured_outputs": {"regex": "[a"}}, "structured_outputs.regex", "unclosed character class"),
    ({"structured_outputs": {"regex": "(a{999}){999}"}}, "structured_outputs.regex", "10,000"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "0 were given"),
    ({"structured_outputs": {"choice": ["a", ""]}}, "structured_outputs.choice", 'one of them is ""'),
    ({"structured_outputs": {"json": 5}}, "structured_outputs.json", "an object, or a string of one"),
    ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "it is not JSON"),
    ({"structured_outputs": {"json_object": "yes"}}, "structured_outputs.json_object", "true or false"),
    ({"structured_outputs": {"grammar": "root ::= x"}}, "structured_outputs.grammar", "not supported"),
    ({"guided_json": {}}, "guided_json", "use structured_outputs.json"),
    ({"guided_choice": ["a"]}, "guided_choice", "use structured_outputs.choice"),
    ({"json_schema": {}}, "json_schema", "use response_format or structured_outputs.json"),
    ({"grammar": "root ::= x"}, "grammar", "use structured_outputs.regex or .json"),
    ({"n_predict": 5}, "n_predict", "use max_tokens"),
    ({"repeat_penalty": 1.1}, "repeat_penalty", "the only value allowed is 1"),
    ({"mirostat": 2}, "mirostat", "the only value allowed is 0"),
    ({"cache_salt": "x"}, "cache_salt", "the only value allowed is empty"),
    ({"priority": 3}, "priority", "the only value allowed is 0"),
    ({"reasoning_effort": "high"}, "reasoning_effort", "the only value allowed is empty"),
    (
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "structured_outputs",
        "give one of them",
    ),
    (
        {"response_format": {"type": "json_object"}, "ignore_eos": True},
        "ignore_eos",
        "must be false with response_format.type",
    ),
]


@pytest.mark.parametrize(("fields", "param", "says"), COMMON)
async def test_common_fields(gateway: Gateway, fields: dict[str, Any], param: str, says: str) -> None:
    for path, body in ((CHAT, chat(**fields)), (TEXT, text(**fields))):
        error = await refused(gateway, path, body)
        assert error["param"] == param
        assert says in error["message"]


async def test_what_fits_one_by_one_may_be_too_much_together(gateway: Gateway) -> None:
    error = await refused(gateway, CHAT, chat(n=8, max_tokens=2000, logprobs=True, top_logprobs=20))
    assert error["param"] == "logprobs"
    assert "n 8 x max_tokens 2,000 x (20 + 1) logprobs = 336,000; at most 262,144" in error["message"]
    error = await refused(gateway, CHAT, chat(top_logprobs=3))
    assert (error["param"], error["message"]) == ("top_logprobs", "top_logprobs 3 needs logprobs to be true")


@pytest.mark.parametrize("bounds", [GatewaySettings(max_choices_tokens=100)])
async def test_tokens_of_all_choices_are_bounded(bounded_gateway: Gateway) -> None:
    error = await refused(bounded_gateway, TEXT, text(n=4, max_tokens=26))
    assert error["param"] == "n"
    assert "n 4 x max_tokens 26 = 104 tokens; at most 100 are allowed together" in error["message"]
    # Also where the length was not asked for.
    assert (await refused(bounded_gateway, CHAT, chat(n=2, max_tokens=None)))["param"] == "n"


@pytest.mark.parametrize("bounds", [GatewaySettings(max_constraints_waiting=0)])
async def test_too_many_constraints_at_once_are_refused_for_now(bounded_gateway: Gateway) -> None:
    response = await bounded_gateway.post(CHAT, chat(response_format={"type": "json_object"}))
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("bounds", [GatewaySettings(constraint_deadline_s=0.0)])
async def test_a_constraint_that_takes_too_long_is_refused(bounded_gateway: Gateway) -> None:
    error = await refused(bounded_gateway, CHAT, chat(response_format={"type": "json_object"}))
    assert error["param"] == "response_format.type"
    assert "does not compile within 0 s" in error["message"]


@pytest.mark.parametrize(
    ("messages", "param", "says"),
    [
        (None, "messages", "a list of 1 to 1,024 messages"),
        ([], "messages", "0 were given"),
        ("hi", "messages", 'not "hi"'),
        ([{"role": "user", "content": "x"}] * 1025, "messages", "1,025 were given"),
        (["hi"], "messages[0]", "an object with role and content"),
        ([{"content": "hi"}], "messages[0].role", "is required: one of system, user, assistant"),
        ([{"role": "root", "content": "hi"}], "messages[0].role", 'not "root"'),
        ([{"role": ["user"], "content": "hi"}], "messages[0].role", "one of system, user, assistant"),
        ([{"role": "user"}], "messages[0].content", "is required"),
        ([{"role": "user", "content": None}], "messages[0].content", "not null"),
        ([{"role": "user", "content": 5}], "messages[0].content", "a string or a list of text parts, not 5"),
        ([{"role": "user", "content": "a\udc00b"}], "messages[0].content", "lone surrogate"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]", '"type": "text"'),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}],
            "messages[0].content[0].type",
            "the only type allowed is text",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text", "is required"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "\ud83d"}]}],
            "messages[0].content[0].text",
            "lone surrogate",
        ),
        (
            [{"role": "assistant", "content": "", "tool_calls": [{}]}],
            "messages[0].tool_calls",
            "not supported",
        ),
    ],
)
async def test_messages(gateway: Gateway, messages: Any, param: str, says: str) -> None:
    error = await refused(gateway, CHAT, chat(messages=messages))
    assert error["param"] == param
    assert says in error["message"]


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        (None, "must be a string, a list of one string, or a list of token ids, not null"),
        ("", "prompt is empty"),
        ([], "prompt is empty"),
        ([[]], "prompt is empty"),
        (["a", "b"], "prompt holds 2 prompts"),
        ([[1], [2]], "prompt holds 2 prompts"),
        ([1, "a"], 'prompt[1] is "a"'),
        ([1, True], "prompt[1] is true"),
        ([1, -1], "prompt[1] is -1"),
        ([10**6], "prompt[0] is 1000000, not a token id from 0 to 268"),
        ({"a": 1}, "must be a string"),
        (5, "not 5"),
        ("\ud800", "lone surrogate"),
    ],
)
async def test_prompts(gateway: Gateway, prompt: Any, says: str) -> None:
    error = await refused(gateway, TEXT, text(prompt=prompt))
    assert error["param"] == "prompt"
    assert says in error["message"]


async def test_required_fields(gateway: Gateway) -> None:
    assert (await refused(gateway, CHAT, {}))["message"] == "model is required: the model's name"
    assert (await refused(gateway, TEXT, {"model": "tiny"}))["param"] == "prompt"


async def test_unknown_model(gateway: Gateway) -> None:
    error = await refused(gateway, CHAT, chat(model="gpt-\x1b[2J9"), 404)
    assert error["message"] == 'the model "gpt-\\u001b[2J9" does not exist; this server has tiny'
    assert (error["param"], error["code"]) == ("model", "model_not_found")


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_a_prompt_of_100_000_tokens_is_refused_with_both_numbers(gateway: Gateway, path: str) -> None:
    words = "z" * 100_000  # a token each in this vocabulary
    body = chat(messages=[{"role": "user", "content": words}]) if path == CHAT else text(prompt=words)
    error = await refused(gateway, path, body)
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == ("messages" if path == CHAT else "prompt")
    assert "100,000 characters" in error["message"]
    assert "context holds 2,048 tokens" in error["message"]
    ids = await refused(gateway, TEXT, text(prompt=[5] * 100_000))
    assert "prompt 100,000 + max_tokens 4 = 100,004 tokens" in ids["message"]
    fewer = chat(messages=[{"role": "user", "content": words[:4000]}])
    error = await refused(gateway, CHAT, fewer)
    assert re.search(
        r"prompt 4,0\d\d \+ max_tokens 4 = 4,0\d\d tokens; the model's context holds 2,048", error["message"]
    )


async def test_prompt_and_max_tokens_over_the_context(gateway: Gateway) -> None:
    error = await refused(gateway, TEXT, text(prompt=[5] * 2000, max_tokens=49))
    assert error["message"] == "prompt 2,000 + max_tokens 49 = 2,049 tokens; the model's context holds 2,048"


async def test_what_the_fleet_refuses_for_size_says_both_numbers(gateway: Gateway) -> None:
    problem = Problem(
        status=400,
        code="never_fits",
        title="The request can never fit.",
        field="prompt",
        numbers={"prompt_tokens": 1999.0, "pool_tokens": 512.0},
    )
    gateway.fleet.refuse_with = Refusal(problem)
    error = await refused(gateway, TEXT, text(prompt=[5] * 1999))
    assert error["message"] == "The request can never fit. (prompt_tokens 1,999, pool_tokens 512)"
    assert (error["code"], error["param"]) == ("never_fits", "prompt")
    error = await refused(gateway, CHAT, chat())
    assert (error["code"], error["param"]) == ("never_fits", "messages")


@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limit_error"), (503, "server_error")])
async def test_a_full_queue_says_when_to_come_back(gateway: Gateway, status: int, kind: str) -> None:
    gateway.fleet.refuse_with = Refusal(
        Problem(status=status, code="queue_full", title="Full."), retry_after_s=2.5
    )
    response = await gateway.post(CHAT, chat())
    assert response.status_code == status
    assert response.headers["retry-after"] == "3"
    assert response.json()["error"] == {"message": "Full.", "type": kind, "param": None, "code": "queue_full"}


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-infer-tenant", "UPPER"),
        ("x-infer-tenant", ""),
        ("x-infer-tenant", "a/b"),
        ("x-infer-tenant", "a" * 65),
        ("x-infer-tier", "gold"),
        ("x-infer-tier", ""),
    ],
)
async def test_headers(gateway: Gateway, header: str, value: str) -> None:
    error = await refused(gateway, CHAT, chat(), **{header: value})
    assert error["param"] == header
    assert json.dumps(value)[:20] in error["message"]


async def test_tier_named_twice_and_differently(gateway: Gateway) -> None:
    error = await refused(gateway, CHAT, chat(tier="batch"), **{"x-infer-tier": "interactive"})
    assert error["param"] == "tier"


async def test_content_type(gateway: Gateway) -> None:
    """Forms and plain text are what a hostile page can send without asking: not taken."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        error = await refused(gateway, CHAT, chat(), 415, **{"content-type": kind})
        assert error["code"] == "unsupported_media_type"
    response = await gateway.post(CHAT, chat(n=0), **{"content-type": "Application/JSON; charset=utf-8"})
    assert response.status_code == 400
    error = await refused(gateway, CHAT, chat(), 415, **{"content-encoding": "gzip"})
    assert "Content-Encoding" in error["message"]
    response = await gateway.post(CHAT, chat(n=0), **{"content-encoding": "Identity"})
    assert response.status_code == 400


async def test_unknown_paths_and_methods_speak_the_same_error_language(gateway: Gateway) -> None:
    missing = await gateway.client.get("/v1/engines%1b")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "not_found"
    assert "\\u001b" in missing.json()["error"]["message"]
    wrong = await gateway.client.get(CHAT)
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert wrong.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("host", [b"[", b"a b", b"evil.example/..;@x", b"\xff", b""])
async def test_the_host_header_decides_nothing(gateway: Gateway, host: bytes) -> None:
    for path in (b"/nowhere", b"/v1/models/", b"/v1/models", b"//evil.example/v1/models"):
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        writer.write(b"GET " + path + b" HTTP/1.1\r\nhost: " + host + b"\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert answer[9:12] in (b"200", b"400", b"404")
        assert b"evil" not in answer.partition(b"\r\n\r\n")[0]


@pytest.mark.parametrize("depth", range(100, 1100, 60))
async def test_values_at_every_depth(gateway: Gateway, depth: int) -> None:
    """What can just be parsed must still be shown, compared and refused."""
    nested = b"[" * depth + b"]" * depth
    for field in (b"messages", b"stop", b"tools", b"response_format", b"n", b"unknown"):
        await refused(gateway, CHAT, b'{"model": "tiny", "' + field + b'": ' + nested + b"}")


async def test_fields_that_nobody_knows_and_nulls_are_ignored(gateway: Gateway) -> None:
    harmless = {
        "metadata": {"a": [1]},
        "store": True,
        "parallel_tool_calls": None,
        "n": None,
        "stop": None,
        "stream": None,
        "stream_options": None,
        "temperature": None,
        "seed": None,
        "logprobs": None,
        "user": None,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_tokens": 4,
        "ignore_eos": True,
        "best_of": 1,
    }
    gateway.fleet.refuse_with = Refusal(Problem(status=429, code="queue_full", title="got this far"))
    for path, body in ((CHAT, chat(**harmless)), (TEXT, text(**harmless))):
        assert (await gateway.post(path, body)).status_code == 429
