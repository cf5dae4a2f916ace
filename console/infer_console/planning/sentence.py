"""A sentence as words, and the tokens that they fall into."""

import re
from dataclasses import dataclass

from infer_engine.protocol import Tokenized


@dataclass(frozen=True, slots=True)
class Token:
    id: int
    #: The bytes of the text that it stands for; None where nobody tells them.
    spelled: bytes | None
    #: Which word its first letter is of; None of blanks, and where the words cannot be told.
    word: int | None
    #: It is the first one of its word.
    begins: bool = False

    @property
    def text(self) -> str | None:
        """A part of a character as its bytes: ``\\xe6\\xbc``."""
        return None if self.spelled is None else self.spelled.decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class Sentence:
    text: str
    words: tuple[str, ...]
    #: None where there is no tokenizer.
    tokens: tuple[Token, ...] | None = None
    #: The model whose tokens they are; untrusted text.
    tokenizer: str | None = None


def cut(text: str, tokenized: Tokenized | None) -> Sentence:
    """Words are what stands between blanks. Tokens are the tokenizer's, or not known."""
    found = list(re.finditer(r"\S+", text))
    words = tuple(each[0] for each in found)
    if tokenized is None:
        return Sentence(text, words)
    ends = [len(text[: each.end()].encode("utf-8", "replace")) for each in found]
    return Sentence(text, words, tuple(_tokens(text, tokenized, ends)), tokenized.tokenizer)


def _tokens(text: str, tokenized: Tokenized, ends: list[int]) -> list[Token]:
    """``ends``: where each word ends, in bytes. Some tokenizers put a space before everything."""
    pieces, wanted = tokenized.tokens, text.encode("utf-8", "replace")
    whole = b"".join(each.spelled or b"" for each in pieces)
    if whole not in (wanted, b" " + wanted):
        return [Token(each.id, each.spelled, None) for each in pieces]
    tokens: list[Token] = []
    at, word, last = len(wanted) - len(whole), 0, None
    for each in pieces:
        spelled = each.spelled or b""
        first = at + len(spelled) - len(spelled.lstrip())
        at += len(spelled)
        while word < len(ends) and ends[word] <= first:
            word += 1
        own = word if first < at and word < len(ends) else None
        tokens.append(Token(each.id, each.spelled, own, own is not None and own != last))
        last = own if own is not None else last
    return tokens
