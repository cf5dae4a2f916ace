"""Who waits for admission, in the order in which admission looks at them."""

from collections import Counter, OrderedDict
from collections.abc import Iterator, KeysView
from itertools import chain

from infer_engine.core.line import Barrier, Line, Stream
from infer_engine.core.request import Request
from infer_engine.protocol import Tier

#: Admission order of the tiers.
TIERS: tuple[Tier, ...] = ("interactive", "batch")
#: So many priorities are remembered beside those that somebody waits in.
MOST_EMPTY_LINES = 16


class _Lane:
    """One tier's queue: first those that already ran (their clients sit before a stalled stream), then by
    priority, and within a priority by turns of the tenants."""

    def __init__(self) -> None:
        self.started = Line(fair=False)
        #: By priority, the highest first.
        self.fresh: dict[int, Line] = {}
        self._back = 0
        self._front = 0

    def __len__(self) -> int:
        return len(self.started) + sum(map(len, self.fresh.values()))

    def lines(self) -> Iterator[Line]:
        return (line for line in (self.started, *self.fresh.values()) if len(line))

    def line(self, priority: int) -> Line:
        line = self.fresh.get(priority)
        if line is None:
            kept = {number: line for number, line in self.fresh.items() if len(line)}
            if len(self.fresh) >= len(kept) + MOST_EMPTY_LINES:
                self.fresh = kept
            line = self.fresh[priority] = Line(fair=True)
            self.fresh = dict(sorted(self.fresh.items(), reverse=True))
        return line

    def last_place(self) -> tuple[float, int]:
        """Behind all that started."""
        self._back += 1
        return 0.0, self._back

    def first_place(self) -> tuple[float, int]:
        self._front -= 1
        return 0.0, self._front


class WaitingQueue:
    """Nothing costs more for many who wait, but for a request that waited elsewhere before it came here and
    is sorted in among the later arrivals, and for a new ``long_tokens``."""

    def __init__(self) -> None:
        self._lanes: dict[Tier, _Lane] = {tier: _Lane() for tier in TIERS}
        self._streams: dict[Request, Stream] = {}
        self._serial = 0
        #: Tokens of all who wait.
        self.tokens = 0
        #: How many wait by tier, tenant and whether the prompt may be long.
        self.sizes: Counter[tuple[Tier, str, bool]] = Counter()
        #: Those of the batch tier in the order in which they were pushed.
        self._batch_by_age: OrderedDict[Request, None] = OrderedDict()
        self._long_tokens = 0

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self.order(tier) for tier in TIERS)

    def members(self) -> KeysView[Request]:
        """Who waits, in no order that means anything: finding the turns of many costs more."""
        return self._streams.keys()

    def __contains__(self, request: Request) -> bool:
        return request in self._streams

    def count(self, tier: Tier) -> int:
        return len(self._lanes[tier])

    def has_any(self, tier: Tier) -> bool:
        """Whether somebody waits in that tier or one before it."""
        return self.count("interactive") > 0 or (tier == "batch" and self.count("batch") > 0)

    @property
    def long_tokens(self) -> int:
        """Prompts with more tokens than these, what is swapped out not counted, may be long."""
        return self._long_tokens

    @long_tokens.setter
    def long_tokens(self, tokens: int) -> None:
        if tokens == self._long_tokens:
            return
        self._long_tokens = tokens
        for request, stream in list(self._streams.items()):
            if self.may_be_long(request) != stream.long:
                place = stream.requests[request]
                # Its tenant is not absent meanwhile.
                stream.account.waiting += 1
                self._leave(request)
                self._enter(request, stream.line, place)
                stream.account.waiting -= 1

    def may_be_long(self, request: Request) -> bool:
        return request.total_tokens - request.host_tokens > self._long_tokens

    def is_queued_as_long(self, request: Request) -> bool:
        return self._streams[request].long

    def push(self, request: Request) -> None:
        """A request that came in: by priority, tenant and arrival, or behind the preempted if it brings
        tokens from another replica."""
        lane = self._lanes[request.lane]
        line = lane.line(request.priority)
        request.account = line.account(request.tenant)
        if request.output:
            self._enter(request, lane.started, lane.last_place())
        else:
            self._serial += 1
            self._enter(request, line, (request.arrival_s, self._serial))
        self._note_age(request)

    def push_first(self, request: Request) -> None:
        """To the very front of its tier: it was preempted or has aged. The victims of one step come least
        important first, so this keeps rank."""
        lane = self._lanes[request.lane]
        self._enter(request, lane.started, lane.first_place())
        self._note_age(request)

    def _note_age(self, request: Request) -> None:
        if request.lane == "batch":
            self._batch_by_age[request] = None

    def _enter(self, request: Request, line: Line, place: tuple[float, int]) -> None:
        long = self.may_be_long(request)
        self._streams[request] = line.add(request, place, long=long)
        self.sizes[request.lane, request.tenant, long] += 1
        self.tokens += request.total_tokens

    def remove(self, request: Request) -> None:
        """Take out a waiting request; KeyError if it does not wait."""
        self._leave(request)
        self._batch_by_age.pop(request, None)

    def _leave(self, request: Request) -> None:
        stream = self._streams.pop(request)
        stream.line.remove(request, stream)
        self.tokens -= request.total_tokens
        key = request.lane, request.tenant, stream.long
        self.sizes[key] -= 1
        if not self.sizes[key]:
            del self.sizes[key]

    def admitted(self, request: Request, *, in_turn: bool) -> None:
        """Take it out and let its tenant pay for what is to compute, if it has not run before."""
        line = self._streams[request].line
        self.remove(request)
        if request.preemptions == 0 and not request.output:
            line.charge(request, request.total_tokens - request.computed_tokens, in_turn=in_turn)

    def first(self, tier: Tier) -> Request | None:
        return next(self.order(tier), None)

    def order(self, tier: Tier, barrier: Barrier | None = None) -> Iterator[Request]:
        """See ``Line.order``."""
        return chain.from_iterable(line.order(barrier) for line in self._lanes[tier].lines())

    def oldest_batch(self) -> Request | None:
        """The request of the batch tier that was pushed first."""
        return next(iter(self._batch_by_age), None)
