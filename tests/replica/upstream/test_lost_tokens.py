import pytest
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.replica.upstream.lost_tokens import LostTokens
from support.tiny_model import write_tiny_gguf


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_file(write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"))


def test_the_usual_tokens_are_taken_where_they_fit(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("the 😀")
    assert LostTokens(tokenizer).find("the 😀", len(ids), ids[-1]) == ids


def test_others_that_make_up_the_same_text_are_found(tokenizer: Tokenizer) -> None:
    last = tokenizer.encode("e")[-1]
    ids = LostTokens(tokenizer).find("the", 3, last)
    assert ids is not None
    assert len(ids) == 3
    assert tokenizer.decode(ids) == "the"


@pytest.mark.parametrize(("text", "count"), [("the", 9), ("the", 1), ("", 2), ("a" * 500, 40)])
def test_what_cannot_be_is_not_made_up(text: str, count: int, tokenizer: Tokenizer) -> None:
    assert LostTokens(tokenizer).find(text, count, tokenizer.encode("😀")[-1]) is None
    assert LostTokens(tokenizer).find(text, count, 10**9) is None
