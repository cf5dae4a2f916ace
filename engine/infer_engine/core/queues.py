"""Who waits for admission, in the order in which admission looks at them."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain, islice, takewhile
from typing import cast

from infer_engine.core.request import Request
from infer_engine.protocol import Tier

#: Admission order of the tiers.
TIERS: tuple[Tier, ...] = ("interactive", "batch")


class _Line:
    """One tier's queue: first those that already ran (their clients sit before a stalled stream), then by
    priority and arrival."""

    def __init__(self) -> None:
        self.started: OrderedDict[str, Request] = OrderedDict()
        #: By priority, the highest first.
        self.fresh: dict[int, OrderedDict[str, Request]] = {}

    def __len__(self) -> int:
        return len(self.started) + sum(map(len, self.fresh.values()))

    def __iter__(self) -> Iterator[Request]:
        return chain(self.started.values(), *(requests.values() for requests in self.fresh.values()))

    def holder(self, request: Request) -> OrderedDict[str, Request] | None:
        """Where in this line the request stands."""
        for requests in (self.started, self.fresh.get(request.priority, {})):
            if requests.get(request.id) is request:
                return cast("OrderedDict[str, Request]", requests)
        return None

    def add_fresh(self, request: Request) -> None:
        requests = self.fresh.get(request.priority)
        if requests is None:
            requests = self.fresh[request.priority] = OrderedDict()
            self.fresh = dict(sorted(self.fresh.items(), reverse=True))
        later = list(
            takewhile(lambda other: other.arrival_s > request.arrival_s, reversed(requests.values()))
        )
        requests[request.id] = request
        for other in reversed(later):
            requests.move_to_end(other.id)


class WaitingQueue:
    """Every operation takes constant time, except that a request which waited elsewhere before it came here
    is sorted in among the later arrivals."""

    def __init__(self) -> None:
        self._lines: dict[Tier, _Line] = {tier: _Line() for tier in TIERS}
        #: Tokens of all who wait.
        self.tokens = 0
        #: Those of the batch tier in the order in which they were pushed.
        self._batch_by_age: OrderedDict[str, Request] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self._lines[tier] for tier in TIERS)

    def __contains__(self, request: Request) -> bool:
        return self._lines[request.lane].holder(request) is not None

    def count(self, tier: Tier) -> int:
        return len(self._lines[tier])

    def push(self, request: Request) -> None:
        """A request that came in: by priority and arrival, or behind the preempted if it brings tokens from
        another replica."""
        line = self._lines[request.lane]
        self._entered(request)
        if request.output:
            line.started[request.id] = request
        else:
            line.add_fresh(request)

    def push_first(self, request: Request) -> None:
        """To the very front of its tier: it was preempted or has aged. The victims of one step come least
        important first, so this keeps rank."""
        line = self._lines[request.lane]
        self._entered(request)
        line.started[request.id] = request
        line.started.move_to_end(request.id, last=False)

    def _entered(self, request: Request) -> None:
        self.tokens += request.total_tokens
        if request.lane == "batch":
            self._batch_by_age[request.id] = request

    def remove(self, request: Request) -> None:
        """Take out a waiting request; KeyError if it does not wait."""
        line = self._lines[request.lane]
        holder = line.holder(request)
        if holder is None:
            raise KeyError(request.id)
        del holder[request.id]
        self._batch_by_age.pop(request.id, None)
        self.tokens -= request.total_tokens
        if not holder and holder is not line.started:
            del line.fresh[request.priority]

    def first(self, tier: Tier) -> Request | None:
        return next(iter(self._lines[tier]), None)

    def oldest_batch(self) -> Request | None:
        """The request of the batch tier that was pushed first."""
        return next(iter(self._batch_by_age.values()), None)

    def behind_first(self, tier: Tier, count: int) -> list[Request]:
        """Up to ``count`` requests after the tier's first."""
        return list(islice(self._lines[tier], 1, 1 + count))
