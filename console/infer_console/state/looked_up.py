"""What is asked for while somebody looks at it: the requests of the whole fleet, one request's timeline,
a sentence as tokens."""

from infer_engine.protocol import Requests, Timeline, Tokenized

from infer_console.state.picture import Listing, SentencePicture, TimelinePicture

#: Requests listed at most.
MAX_ROWS = 500


class LookedUp:
    """``at`` everywhere is Unix seconds. What came stays while it is looked at, also where the server does
    not answer any more."""

    def __init__(self) -> None:
        self.listing: Listing | None = None
        self.listing_message = ""
        self.timeline: TimelinePicture | None = None
        self.sentence: SentencePicture | None = None

    def listed(self, found: Requests, at: float) -> None:
        """A server that knows no limit sends them all."""
        rows = tuple(found.requests[:MAX_ROWS])
        omitted: dict[str, int] = {**found.omitted}
        for row in found.requests[MAX_ROWS:]:
            omitted[row.state] = omitted.get(row.state, 0) + 1
        self.listing, self.listing_message = Listing(rows, at, omitted), ""

    def listing_failed(self, why: str) -> None:
        self.listing_message = why

    def listing_left(self) -> None:
        """Nobody looks any more: what is not asked for again would be taken for the present."""
        self.listing, self.listing_message = None, ""

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
