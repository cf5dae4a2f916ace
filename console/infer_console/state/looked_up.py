"""What is asked for while somebody looks at it: the requests of the whole fleet, one request's timeline,
a sentence as tokens."""

from dataclasses import replace

from infer_engine.protocol import RequestRow, Requests, Tenants, Timeline, Tokenized

from infer_console.state.picture import Demand, Listing, SentencePicture, TimelinePicture

#: Requests listed at most.
MAX_ROWS = 500
#: Requests that ended, of which it is known how.
MAX_ENDED = 200
#: Of those that wait, and tenants whose limits are known.
MAX_WAITING, MAX_LIMITED = 16, 256
#: Unix seconds that no server can mean.
LAST_AT = 1e11


class LookedUp:
    """``at`` everywhere is Unix seconds. What came stays while it is looked at, also where the server does
    not answer any more."""

    def __init__(self) -> None:
        self.listing: Listing | None = None
        self.listing_message = ""
        self.demand: Demand | None = None
        self.timeline: TimelinePicture | None = None
        self.sentence: SentencePicture | None = None
        #: The latest first. They stay when nobody looks: how a request ended does not change, and only what
        #: ended since has to be asked for then.
        self._ended: tuple[RequestRow, ...] = ()

    @property
    def last_ended_at(self) -> float:
        """Of what ended up to then nothing has to be told again; Unix seconds."""
        known = (row.ended_at for row in self._ended if row.ended_at is not None)
        return max((at for at in known if 0 <= at < LAST_AT), default=0.0)

    def listed(self, found: Requests, at: float) -> None:
        """A server that knows no limit sends them all."""
        rows = tuple(found.requests[:MAX_ROWS])
        omitted: dict[str, int] = {**found.omitted}
        for row in found.requests[MAX_ROWS:]:
            omitted[row.state] = omitted.get(row.state, 0) + 1
        known = {row.id for row in found.ended}
        earlier = (row for row in self._ended if row.id not in known)
        self._ended = (*found.ended, *earlier)[:MAX_ENDED]
        self.listing, self.listing_message = Listing(rows, at, omitted, self._ended), ""

    def listing_failed(self, why: str) -> None:
        self.listing_message = why

    def listing_left(self) -> None:
        """Nobody looks any more: what is not asked for again would be taken for the present."""
        self.listing, self.listing_message = None, ""

    def waiting_listed(self, found: Requests) -> None:
        """Those that wait, the oldest first."""
        rows = tuple(row for row in found.requests if row.state == "waiting")[:MAX_WAITING]
        self.demand = replace(self.demand or Demand(), waiting=rows)

    def limits_listed(self, found: Tenants) -> None:
        own = {each.name: each.limits for each in found.tenants if each.own}
        limits = dict(list(own.items())[:MAX_LIMITED])
        self.demand = replace(self.demand or Demand(), default_limits=found.default, limits=limits)

    def demand_left(self) -> None:
        self.demand = None

    def timeline_wanted(self, request: str | None) -> None:
        if request is None:
            self.timeline = None
        elif self.timeline is None or self.timeline.request != request:
            self.timeline = TimelinePicture(request)

    def timeline_came(self, request: str, timeline: Timeline, at: float) -> None:
        self.timeline = TimelinePicture(request, timeline, at=at)

    def timeline_failed(self, request: str, why: str) -> None:
        known = self.timeline
        if known is not None and known.request == request:
            self.timeline = TimelinePicture(request, known.timeline, why, known.at)

    def sentence_wanted(self, text: str | None) -> None:
        if text is None:
            self.sentence = None
        elif self.sentence is None or self.sentence.text != text:
            self.sentence = SentencePicture(text)

    def sentence_came(self, text: str, found: Tokenized | str) -> None:
        """Its tokens, or why there are none."""
        if self.sentence is not None and self.sentence.text == text:
            tokens, message = (None, found) if isinstance(found, str) else (found, "")
            self.sentence = SentencePicture(text, tokens, message)
