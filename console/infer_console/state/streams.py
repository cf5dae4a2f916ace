"""The tail of one request's generated text."""

from infer_engine.protocol import TokenDelta

from infer_console.state.picture import StreamPicture

#: Characters kept of one stream, and streams tapped at once.
MAX_CHARS = 64 * 1024
MAX_STREAMS = 16


#: Tokens of one stream whose times are kept, and how many go at once when there are more: what is drawn of
#: them moves only then.
MAX_TOKENS = 4_096
TOKENS_AT_ONCE = 1_024

#: ``finish_reason`` of a request that the server no longer knows.
GONE = "gone"


class StreamTail:
    """Appends token deltas. A tap opened anew tells a request's recent text again, which replaces what is
    there."""

    __slots__ = (
        "_ats",
        "_characters",
        "_chars",
        "_dropped",
        "_finish_reason",
        "_gaps_s",
        "_heard_at",
        "_last_itl_s",
        "_parts",
        "_picture",
        "_retold",
        "_tokens",
        "request",
    )

    def __init__(self, request: str) -> None:
        self.request = request
        self._clear()

    def _clear(self) -> None:
        self._retold = False
        self._parts: list[str] = []
        self._chars = 0
        self._dropped = 0
        self._tokens = 0
        self._last_itl_s: float | None = None
        self._finish_reason: str | None = None
        self._gaps_s: list[float | None] = []
        self._ats: list[float] = []
        self._characters: list[int] = []
        self._heard_at: float | None = None
        self._picture: StreamPicture | None = None

    @property
    def ended(self) -> bool:
        return self._finish_reason is not None

    def opened(self) -> None:
        """The tap was opened (anew): the next text is the beginning of what the server still tells."""
        self._retold = True

    def gone(self) -> None:
        """The server knows the request no longer; what was read stays."""
        self._finish_reason = self._finish_reason or GONE
        self._picture = None

    def apply(self, delta: TokenDelta, heard_at: float | None = None) -> None:
        """``heard_at`` is when it came here, in Unix seconds."""
        if delta.tokens and self._retold:
            self._clear()
        if delta.index >= self._tokens:
            self._time(delta)
            self._append(delta)
            self._heard_at = heard_at
        if delta.finish_reason is not None:
            self._finish_reason = delta.finish_reason
        self._picture = None

    def _time(self, delta: TokenDelta) -> None:
        """When each of its tokens came."""
        if delta.index != self._tokens:  # some are missing: what was before is not next to it
            self._gaps_s, self._ats, self._characters = [], [], []
        gaps_s: list[float | None] = [None] * max(0, delta.tokens - 1) + [delta.itl_s]
        if len(delta.gaps_s) == delta.tokens:
            gaps_s = delta.gaps_s
        ats: list[float] = []
        at = delta.at
        for gap_s in reversed(gaps_s[: delta.tokens]):
            ats.append(at)
            at -= gap_s or 0.0
        self._gaps_s += gaps_s[: delta.tokens]
        self._ats += reversed(ats)
        if len(delta.characters) == delta.tokens:
            self._characters += delta.characters
        rest = len(delta.text) - sum(delta.characters)
        if self._characters and rest > 0:  # the last token's bytes, which waited for more
            self._characters[-1] += rest
        if len(self._gaps_s) > MAX_TOKENS:
            for kept in (self._gaps_s, self._ats, self._characters):
                del kept[: max(0, len(kept) - MAX_TOKENS + TOKENS_AT_ONCE)]

    def _append(self, delta: TokenDelta) -> None:
        self._tokens = delta.index + delta.tokens
        if delta.itl_s is not None:
            self._last_itl_s = delta.itl_s
        if delta.text:
            self._parts.append(delta.text)
            self._chars += len(delta.text)
        if self._chars > MAX_CHARS + MAX_CHARS // 4:
            text = "".join(self._parts)
            self._dropped += len(text) - MAX_CHARS
            self._parts = [text[-MAX_CHARS:]]
            self._chars = MAX_CHARS

    def picture(self) -> StreamPicture:
        if self._picture is None:
            text = "".join(self._parts)
            self._parts = [text] if text else []
            shown = text[-MAX_CHARS:]
            self._picture = StreamPicture(
                request=self.request,
                text=shown,
                tokens=self._tokens,
                dropped_chars=self._dropped + len(text) - len(shown),
                last_itl_s=self._last_itl_s,
                finish_reason=self._finish_reason,
                gaps_s=tuple(self._gaps_s),
                ats=tuple(self._ats),
                characters=tuple(self._characters),
                heard_at=self._heard_at,
            )
        return self._picture
