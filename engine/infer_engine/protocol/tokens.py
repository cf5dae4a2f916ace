"""The token tap: a separate, permissioned stream."""

from msgspec import Struct

from infer_engine.protocol.words import FinishReason


class TokenDelta(Struct, frozen=True, kw_only=True):
    """Generated text of one request. ``index`` is the position of its first token; text is untrusted."""

    request: str
    index: int
    text: str
    at: float
    tokens: int = 1
    finish_reason: FinishReason | None = None
    #: Seconds since the token before it, None for the first.
    itl_s: float | None = None
    #: The same for each of the tokens, and how many characters of ``text`` each has (none where its bytes
    #: wait for the next one's; empty where no text is told).
    gaps_s: list[float | None] = []
    characters: list[int] = []
