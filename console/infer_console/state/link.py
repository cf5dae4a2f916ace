"""The connection to one server, as the operator sees it."""

from collections import deque
from typing import Literal

from infer_console.state.picture import Link, LinkState

#: A live link that said nothing for this long (heartbeats come every 2 s) makes the view stale.
STALE_AFTER_S = 3.0
#: Window of the shown byte rate.
RATE_WINDOW_S = 5.0
LinkNews = Literal["link lost", "link back"]


class LinkFold:
    """Times are the console's monotonic clock."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._state: LinkState = "connecting"
        self._message = ""
        self._note = ""
        self._heard_s: float | None = None
        self._was_live = False
        self._reconnects = 0
        self._resyncs = 0
        self._bytes: deque[tuple[float, int]] = deque(maxlen=1024)
        #: That it went away and came back, since ``take_news`` was last called.
        self._news: deque[tuple[LinkNews, str]] = deque(maxlen=16)

    @property
    def state(self) -> LinkState:
        return self._state

    @property
    def heard_s(self) -> float | None:
        """When the last message came, None before the first."""
        return self._heard_s

    def starting(self, message: str) -> None:
        """The embedded engine is on its way up; there is nothing to connect to yet."""
        self._state, self._message = "starting", message

    def connecting(self, message: str = "") -> None:
        if self._was_live:
            self.lost(message)
        else:
            self._state, self._message = "connecting", message

    def live(self, now_s: float) -> None:
        """A snapshot has arrived whole on a fresh connection."""
        if self._state != "live" and self._was_live:
            self._reconnects += 1
            self._news.append(("link back", ""))
        self._state, self._message = "live", ""
        self._was_live = True
        self._heard_s = now_s

    def resumed(self, now_s: float) -> None:
        """The stream goes on after the last message that came: what is shown is whole without a snapshot."""
        if self._state != "live":
            self.live(now_s)

    def lost(self, message: str) -> None:
        if self._was_live and self._state != "lost":
            self._news.append(("link lost", message))
        self._state, self._message = "lost", message

    def take_news(self) -> list[tuple[LinkNews, str]]:
        """What happened to the link since it was last asked, the oldest first, and why."""
        news = list(self._news)
        self._news.clear()
        return news

    def note(self, message: str) -> None:
        """Something an operator should know of a link that works; empty when there is nothing."""
        self._note = message

    def heard(self, now_s: float) -> None:
        self._heard_s = now_s

    def received(self, count: int, now_s: float) -> None:
        if count > 0:
            self._bytes.append((now_s, count))

    def resynced(self) -> None:
        self._resyncs += 1

    def picture(self, now_s: float) -> Link:
        age_s = None if self._heard_s is None else max(0.0, now_s - self._heard_s)
        state = self._state
        if state == "live" and age_s is not None and age_s > STALE_AFTER_S:
            state = "stale"
        while self._bytes and now_s - self._bytes[0][0] > RATE_WINDOW_S:
            self._bytes.popleft()
        rate = sum(count for _, count in self._bytes) / RATE_WINDOW_S if self._was_live else None
        return Link(
            url=self._url,
            state=state,
            age_s=age_s,
            bytes_per_s=rate,
            reconnects=self._reconnects,
            resyncs=self._resyncs,
            message=self._message or (self._note if state == "live" else ""),
        )
