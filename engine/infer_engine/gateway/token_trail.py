"""Which tokens the text that was let out is of: for logprobs, which must not run ahead of the text."""

from dataclasses import dataclass, field

from infer_engine.model.logprobs import TokenLogprobs


@dataclass(frozen=True, slots=True)
class ToldToken:
    """``offset`` is where its text begins in the answer, in characters."""

    token: int
    logprobs: TokenLogprobs
    offset: int


@dataclass(slots=True)
class TokenTrail:
    """Tokens whose text is held back, in order. One that has no text of its own (part of a character, an end
    token) goes with the next that has."""

    _waiting: list[tuple[ToldToken, int]] = field(default_factory=list[tuple[ToldToken, int]])
    _textless: list[tuple[int, TokenLogprobs]] = field(default_factory=list[tuple[int, TokenLogprobs]])
    #: Characters of the tokens so far.
    _chars: int = 0

    def push(self, token: int, text: str, logprobs: TokenLogprobs | None) -> None:
        """Tokens without logprobs only move the offsets on."""
        if logprobs is not None:
            self._textless.append((token, logprobs))
        if text:
            self._close(self._chars + len(text))
            self._chars += len(text)

    def release(self, chars: int) -> list[ToldToken]:
        """Take out those whose whole text is among the first ``chars`` characters."""
        count = next((at for at, (_, end) in enumerate(self._waiting) if end > chars), len(self._waiting))
        told = [token for token, _ in self._waiting[:count]]
        del self._waiting[:count]
        return told

    def finish(self, cut: int | None) -> list[ToldToken]:
        """No more text comes. ``cut`` is where a stop string ended the answer: tokens that begin there or
        behind are not part of it."""
        self._close(self._chars)
        told = [token for token, _ in self._waiting if cut is None or token.offset < cut]
        self._waiting.clear()
        return told

    def _close(self, end: int) -> None:
        self._waiting += [
            (ToldToken(token, logprobs, self._chars), end) for token, logprobs in self._textless
        ]
        self._textless.clear()
