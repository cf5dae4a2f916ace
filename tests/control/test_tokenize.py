"""A sentence as tokens, over the control API."""

from collections.abc import AsyncGenerator

import httpx2
import msgspec
import pytest
from infer_engine.control.api import build_control
from infer_engine.control.context import Context
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import MOST_SENTENCE, Problem, Tokenized

PATH = "/control/v1/tokenize"


@pytest.fixture
async def api(context: Context) -> AsyncGenerator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=build_control(context, lambda _: "viewer"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize(
    "text",
    ["in the hall", " 漢字 😀", "<|im_start|>a&text=b", "\x1b[2J\n", "a" * MOST_SENTENCE],
    ids=["words", "wide", "markup", "controls", "longest"],
)
async def test_it_is_cut_as_prompts_are(api: httpx2.AsyncClient, tokenizer: Tokenizer, text: str) -> None:
    response = await api.get(PATH, params={"text": text})
    assert response.status_code == 200
    told = msgspec.json.decode(response.content, type=Tokenized)
    assert [each.id for each in told.tokens] == tokenizer.encode(text)
    assert b"".join(each.spelled or b"" for each in told.tokens) == text.encode()
    assert told.tokenizer == "smollm2-135m-instruct"


@pytest.mark.parametrize("query", ["", "?text=", f"?text={'a' * (MOST_SENTENCE + 1)}", "?texts=a"])
async def test_its_length_is_bounded(api: httpx2.AsyncClient, query: str) -> None:
    response = await api.get(PATH + query)
    problem = msgspec.json.decode(response.content, type=Problem)
    assert (response.status_code, problem.code, problem.field) == (400, "invalid_field", "text")
    assert f"1 to {MOST_SENTENCE} characters" in (problem.detail or "")


async def test_what_is_no_utf8_is_cut_all_the_same(api: httpx2.AsyncClient) -> None:
    response = await api.get(PATH + "?text=%ff%ed%a0%80")
    assert response.status_code == 200
