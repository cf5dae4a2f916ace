"""Logprobs in the two shapes that the OpenAI API has for them."""

import math
from collections.abc import Sequence
from typing import Any

from infer_engine.gateway.token_trail import ToldToken

Document = dict[str, Any]
#: JSON has no minus infinity; this is what the OpenAI API says for "as good as impossible".
LOWEST = -9999.0


class LogprobDocuments:
    """``token_bytes`` are the bytes of each token, by id."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes

    def chat(self, told: Sequence[ToldToken]) -> Document:
        """``choices[].logprobs`` of a chat completion."""
        return {
            "content": [
                {
                    **self._entry(each.token, each.logprobs.logprob),
                    "top_logprobs": [
                        self._entry(token, value)
                        for token, value in zip(
                            each.logprobs.top_ids, each.logprobs.top_logprobs, strict=True
                        )
                    ],
                }
                for each in told
            ],
            "refusal": None,
        }

    def completion(self, told: Sequence[ToldToken]) -> Document:
        """``choices[].logprobs`` of a text completion: the chosen token is among the top ones, always."""
        return {
            "tokens": [self._name(each.token) for each in told],
            "token_logprobs": [_finite(each.logprobs.logprob) for each in told],
            "top_logprobs": [self._top(each) for each in told],
            "text_offset": [each.offset for each in told],
        }

    def _top(self, each: ToldToken) -> dict[str, float]:
        pairs = zip(each.logprobs.top_ids, each.logprobs.top_logprobs, strict=True)
        top = {self._name(token): _finite(value) for token, value in pairs}
        top.setdefault(self._name(each.token), _finite(each.logprobs.logprob))
        return top

    def _entry(self, token: int, value: float) -> Document:
        piece = self._bytes(token)
        return {
            "token": piece.decode(errors="replace"),
            "logprob": _finite(value),
            "bytes": list(piece),
        }

    def _name(self, token: int) -> str:
        """Distinct for tokens that are no text by themselves, as this shape has no bytes beside it."""
        piece = self._bytes(token)
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)

    def _bytes(self, token: int) -> bytes:
        return self._token_bytes[token] if 0 <= token < len(self._token_bytes) else b""


def _finite(value: float) -> float:
    return max(value, LOWEST) if math.isfinite(value) else LOWEST
