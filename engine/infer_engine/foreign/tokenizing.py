"""A sentence as the tokens of somebody else's server: how each kind is asked, and how it answers. Pure."""

from typing import Any

from infer_engine.byte_alphabet import bytes_of_token
from infer_engine.foreign.asking import entry, integer
from infer_engine.foreign.not_understood import NotUnderstoodError
from infer_engine.protocol import MOST_SENTENCE, TokenPiece

PATH = "/tokenize"
#: No vocabulary makes more of a character than its bytes, or of a text than one token before it.
MOST_TOKENS = 4 * MOST_SENTENCE + 1
#: How vocabularies of the SentencePiece kind write a space.
_SPACE = "▁"


def question(product: str, model: str | None, text: str) -> dict[str, Any]:
    """What is posted: ``text``, nothing added. Names of special tokens in it are text to llama.cpp; vLLM and
    SGLang take them for those tokens, there as in prompts."""
    if product == "llama.cpp":
        return {"content": text, "add_special": False, "parse_special": False, "with_pieces": True}
    asked = {"prompt": text, "add_special_tokens": False, "return_token_strs": True}
    return asked if model is None else {"model": model, **asked}


def pieces(document: Any, text: str) -> list[TokenPiece]:
    """Raise NotUnderstoodError for what tells no token ids. What a token stands for is told only where all of
    them together are the text."""
    told = entry(document, "tokens")
    if not isinstance(told, list) or len(told) > MOST_TOKENS:
        raise NotUnderstoodError(f"{PATH} tells no tokens")
    ids = [integer(entry(each, "id") if isinstance(each, dict) else each) for each in told]
    known = [each for each in ids if each is not None]
    if len(known) != len(ids):
        raise NotUnderstoodError(f"{PATH} tells tokens without ids")
    spelled = _spelled(told, entry(document, "token_strs"), text.encode())
    return [TokenPiece(id, each) for id, each in zip(known, spelled or [None] * len(known), strict=True)]


def _spelled(told: list[Any], names: Any, text: bytes) -> list[bytes] | None:
    """Servers write tokens in one of three ways, and do not say in which: the one that makes the text is
    theirs."""
    found = [_piece(entry(each, "piece")) for each in told]
    ways = [[each for each in found if each is not None]]
    if isinstance(names, list) and all(isinstance(each, str) for each in names):
        ways += [[bytes_of_token(each) for each in names], [_of_sentencepiece(each) for each in names]]
    for way in ways:
        if len(way) == len(told) and b"".join(way) in (text, b" " + text):
            return way
    return None


def _piece(value: Any) -> bytes | None:
    """llama.cpp's: text, or its bytes as numbers where they are no text."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, list) and all(type(each) is int and 0 <= each < 256 for each in value):
        return bytes(value)
    return None


def _of_sentencepiece(name: str) -> bytes:
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        try:
            return bytes([int(name[3:5], 16)])
        except ValueError:
            pass  # a token that only looks like a byte
    return name.replace(_SPACE, " ").encode("utf-8", "replace")
