"""A sentence as the tokens of a server that is not ours."""

import asyncio
import json
from typing import Any

import pytest
from infer_console.connect import parse_url
from infer_console.sources.client import EngineClient
from infer_console.sources.failures import NotUnderstoodError, RefusedError
from infer_engine.foreign.not_understood import NotUnderstoodError as NotTold
from infer_engine.foreign.tokenizing import MOST_TOKENS, pieces
from infer_engine.protocol import Tokenized
from support.foreign_server import ForeignServer, foreign_server, llamacpp_pages, vllm_pages

TEXT = "Hi 漢"
KANJI = "漢".encode()


def told(document: Any, text: str = TEXT) -> list[tuple[int, bytes | None]]:
    return [(each.id, each.spelled) for each in pieces(document, text)]


def test_llamacpp_tells_pieces_and_the_bytes_of_broken_ones() -> None:
    tokens = [{"id": 5, "piece": "Hi"}, {"id": 6, "piece": [32, *KANJI[:2]]}, {"id": 7, "piece": [KANJI[2]]}]
    assert told({"tokens": tokens}) == [(5, b"Hi"), (6, b" " + KANJI[:2]), (7, KANJI[2:])]


def test_vllm_tells_tokens_as_the_vocabulary_writes_them() -> None:
    byte_level = {"tokens": [5, 6], "token_strs": ["Hi", "Ġæ¼¢"]}
    assert told(byte_level) == [(5, b"Hi"), (6, b" " + KANJI)]
    pieces_of = {"tokens": [5, 6, 7, 8, 9], "token_strs": ["▁Hi", "▁", "<0xE6>", "<0xBC>", "<0xA2>"]}
    assert b"".join(each or b"" for _, each in told(pieces_of)) == b" Hi " + KANJI


@pytest.mark.parametrize("names", [None, ["Hi"], ["Hi", "Ho"], ["Hi", 7], "Hi漢"])
def test_what_is_not_the_text_is_not_told(names: Any) -> None:
    assert told({"tokens": [5, 6], "token_strs": names}) == [(5, None), (6, None)]


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"tokens": None}, {"tokens": [1, "2"]}, {"tokens": [{"piece": "a"}]}, {"tokens": [-1]},
     {"tokens": [True]}, {"tokens": [1] * (MOST_TOKENS + 1)}],
)  # fmt: skip
def test_what_tells_no_ids_is_not_understood(document: Any) -> None:
    with pytest.raises(NotTold):
        pieces(document, TEXT)


def tokenize(kind: str, server: ForeignServer, text: str = TEXT) -> Tokenized:
    async def ask() -> Tokenized:
        async with EngineClient(parse_url(f"{kind}+{server.url}")) as client:
            return await client.tokenize(text)

    return asyncio.run(ask())


def test_a_vllm_is_asked_for_the_text_as_it_is() -> None:
    with foreign_server(vllm_pages("before")) as server:
        server.posted["/tokenize"] = json.dumps({"tokens": [5, 6], "token_strs": ["Hi", "Ġæ¼¢"]}).encode()
        found = tokenize("vllm", server)
    assert [(each.id, each.spelled) for each in found.tokens] == [(5, b"Hi"), (6, b" " + KANJI)]
    asked = json.loads(server.bodies[0])
    assert asked == {
        "model": found.tokenizer,
        "prompt": TEXT,
        "add_special_tokens": False,
        "return_token_strs": True,
    }
    assert [line for line in server.asked if line.startswith("POST")] == ["POST /tokenize"]


def test_a_llamacpp_is_asked_for_pieces() -> None:
    with foreign_server(llamacpp_pages("busy")) as server:
        server.posted["/tokenize"] = b'{"tokens": [{"id": 5, "piece": "Hi"}]}'
        assert [each.spelled for each in tokenize("llamacpp", server, "Hi").tokens] == [b"Hi"]
    assert json.loads(server.bodies[0])["with_pieces"] is True


def test_a_server_that_does_not_tokenize_is_said_to() -> None:
    with foreign_server(vllm_pages("before")) as server:
        server.statuses["/tokenize"] = 404
        with pytest.raises(RefusedError, match="answers /tokenize with 404"):
            tokenize("vllm", server)
        server.posted["/tokenize"] = b"<html>"
        with pytest.raises((NotUnderstoodError, RefusedError), match="/tokenize is not JSON"):
            tokenize("vllm", server)
