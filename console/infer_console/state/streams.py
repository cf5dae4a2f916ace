"""The tail of one request's generated text."""

from infer_engine.protocol import TokenDelta

from infer_console.state.picture import StreamPicture

#: Characters kept of one stream, and streams tapped at once.
MAX_CHARS = 64 * 1024
MAX_STREAMS = 16


#: ``finish_reason`` of a request that the server no longer knows.
GONE = "gone"


class StreamTail:
    """Appends token deltas. A tap opened anew tells a request's recent text again, which replaces what is
    there."""

    __slots__ = (
        "_chars",
        "_dropped",
        "_finish_reason",
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

    def apply(self, delta: TokenDelta) -> None:
        if delta.tokens and self._retold:
            self._clear()
        if delta.index >= self._tokens:
            self._append(delta)
        if delta.finish_reason is not None:
            self._finish_reason = delta.finish_reason
        self._picture = None

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
            )
        return self._picture
