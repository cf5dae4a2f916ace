"""Tokens found again from the text that they make up."""

from collections.abc import Sequence

from infer_engine.model.tokenizer import Tokenizer

#: A character has at most 4 bytes, and a token of a byte each makes the most tokens: there is no more to
#: look for than a few characters.
MOST_BYTES = 64
#: Ways that are looked at before it is given up.
MOST_TRIED = 20_000


class LostTokens:
    """Where several rows of tokens make up the same text, the one that the tokenizer itself would cut it into
    is taken, else the one with the longest first token: the text is the same."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._bytes: Sequence[bytes] = tokenizer.token_bytes
        special = set(tokenizer.special_ids.values())
        self._ids = {text: id for id, text in enumerate(self._bytes) if text and id not in special}

    def find(self, text: str, count: int, last: int) -> list[int] | None:
        """``count`` tokens that make up ``text`` and end with ``last``; None where there are none."""
        if not 0 <= last < len(self._bytes):
            return None
        usual = self._tokenizer.encode(text)
        if len(usual) == count and usual[-1] == last:
            return usual
        data, tail = text.encode(), self._bytes[last]
        if not data.endswith(tail) or not tail or len(data) > MOST_BYTES:
            return None
        self._tried = 0
        head = self._split(data[: len(data) - len(tail)], count - 1)
        return None if head is None else [*head, last]

    def _split(self, data: bytes, count: int) -> list[int] | None:
        self._tried += 1
        if not count:
            return None if data else []
        if len(data) < count or self._tried > MOST_TRIED:
            return None
        for length in range(len(data) - count + 1, 0, -1):
            token = self._ids.get(data[:length])
            if token is None:
                continue
            rest = self._split(data[length:], count - 1)
            if rest is not None:
                return [token, *rest]
        return None
