"""Who waits for admission, in the order in which admission looks at them."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain, islice, takewhile

from infer_engine.core.request import Request
from infer_engine.protocol import Tier

#: Admission order of the tiers.
TIERS: tuple[Tier, ...] = ("interactive", "batch")


class _Line:
    """One tier's queue: first those that already ran (their clients sit before a stalled stream), then by
    arrival."""

    def __init__(self) -> None:
        self.started: OrderedDict[str, Request] = OrderedDict()
        self.fresh: OrderedDict[str, Request] = OrderedDict()

    def __len__(self) -> int:
        return len(self.started) + len(self.fresh)

    def __iter__(self) -> Iterator[Request]:
        return chain(self.started.values(), self.fresh.values())


class WaitingQueue:
    """Every operation takes constant time, except that a request which waited elsewhere before it came here
    is sorted in among the later arrivals."""

    def __init__(self) -> None:
        self._lines: dict[Tier, _Line] = {tier: _Line() for tier in TIERS}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self._lines[tier] for tier in TIERS)

    def __contains__(self, request: Request) -> bool:
        line = self._lines[request.tier]
        return line.started.get(request.id) is request or line.fresh.get(request.id) is request

    def count(self, tier: Tier) -> int:
        return len(self._lines[tier])

    def push(self, request: Request) -> None:
        """A request that came in: by arrival, or behind the preempted if it brings tokens from another
        replica."""
        line = self._lines[request.tier]
        if request.output:
            line.started[request.id] = request
            return
        later = list(
            takewhile(lambda other: other.arrival_s > request.arrival_s, reversed(line.fresh.values()))
        )
        line.fresh[request.id] = request
        for other in reversed(later):
            line.fresh.move_to_end(other.id)

    def push_preempted(self, request: Request) -> None:
        """To the very front of its tier. The victims of one step come least important first, so this keeps
        rank."""
        line = self._lines[request.tier]
        line.started[request.id] = request
        line.started.move_to_end(request.id, last=False)

    def remove(self, request: Request) -> None:
        """Take out a waiting request; KeyError if it does not wait."""
        line = self._lines[request.tier]
        if request.id in line.started:
            del line.started[request.id]
        else:
            del line.fresh[request.id]

    def first(self, tier: Tier) -> Request | None:
        return next(iter(self._lines[tier]), None)

    def behind_first(self, tier: Tier, count: int) -> list[Request]:
        """Up to ``count`` requests after the tier's first."""
        return list(islice(self._lines[tier], 1, 1 + count))
