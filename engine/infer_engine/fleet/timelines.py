"""The timelines of all requests: of the live ones, and of the last that ended; and where the time to the
first byte went lately."""

import math
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from infer_engine.fleet.generation import Generation
from infer_engine.fleet.ledger import MOST_TOMBSTONES, Ledger
from infer_engine.fleet.timeline import TimelineLog, summed
from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import TtftSplit, TtftSplits

#: Splits of the last WINDOW_S seconds, at most so many of them (about 300 bytes each).
WINDOW_S = 60.0
MOST_SPLITS = 4_096
#: Figures are made anew at most this often: they go through all splits.
FIGURES_PERIOD_S = 1.0
SLOWEST_SHARE = 0.01

PARTS = ("gateway", "tokenize", "queue", "prefill", "send", "total")


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    replica: str | None
    split: TtftSplit


@dataclass(slots=True)
class Timelines:
    """``now_s`` everywhere is the ledger's clock."""

    ledger: Ledger
    #: Of finished requests, the oldest first.
    _kept: OrderedDict[str, TimelineLog] = field(default_factory=OrderedDict[str, TimelineLog])
    #: How many requests ended so far.
    _ended: int = 0
    _samples: deque[_Sample] = field(default_factory=lambda: deque[_Sample](maxlen=MOST_SPLITS))
    _figures: dict[str | None, TtftSplits] = field(default_factory=dict[str | None, TtftSplits])
    _figures_s: float | None = None

    def __post_init__(self) -> None:
        self.ledger.on_finish(self._finished)

    def find(self, request_id: str) -> TimelineLog | None:
        """Of a live request or one of the last thousand that ended."""
        request = self.ledger.live.get(request_id)
        return self._kept.get(request_id) if request is None else request.generation.log

    def ended_since(self, ended: int) -> tuple[int, list[tuple[str, TimelineLog]]]:
        """Those that ended after the first ``ended`` did, the latest first, as far as they are kept; and how
        many did by now."""
        return self._ended, list(islice(reversed(self._kept.items()), max(0, self._ended - ended)))

    def of_live(self, most: int) -> list[tuple[str, TimelineLog]]:
        """Of requests that have not ended, the oldest first."""
        return [(request.id, request.generation.log) for request in islice(self.ledger.live.values(), most)]

    def first_byte(self, generation: Generation) -> None:
        """The first byte of its answer is on its way. Test traffic has no part in the figures."""
        now_s = self.ledger.clock()
        if generation.log.first_byte(now_s) and not generation.spec.synthetic:
            self._samples.append(_Sample(now_s, generation.replica, generation.log.split()))

    def _finished(self, request: Tracked) -> None:
        self._ended += 1
        self._kept[request.id] = request.generation.log
        while len(self._kept) > MOST_TOMBSTONES:
            self._kept.popitem(last=False)

    # --- figures -------------------------------------------------------------------------------------------

    def figures(self, replica: str | None) -> TtftSplits:
        """Over the last minute: of one replica, or (None) of the fleet."""
        now_s = self.ledger.clock()
        if self._figures_s is None or now_s - self._figures_s >= FIGURES_PERIOD_S:
            self._figures_s = now_s
            self._figures = self._made(now_s)
        return self._figures.get(replica, TtftSplits())

    def _made(self, now_s: float) -> dict[str | None, TtftSplits]:
        while self._samples and self._samples[0].at_s < now_s - WINDOW_S:
            self._samples.popleft()
        by: dict[str | None, list[TtftSplit]] = {None: [each.split for each in self._samples]}
        for sample in self._samples:
            if sample.replica is not None:
                by.setdefault(sample.replica, []).append(sample.split)
        pending: dict[str | None, list[TtftSplit]] = {}
        for request in self.ledger.live.values():
            if request.generation.spec.synthetic or not request.generation.spec.streams:
                continue
            split = request.generation.log.split_so_far(now_s)
            if split is not None:
                pending.setdefault(None, []).append(split)
                if request.generation.replica is not None:
                    pending.setdefault(request.generation.replica, []).append(split)
        return {key: _splits(by.get(key, []), pending.get(key, [])) for key in by.keys() | pending.keys()}


def _splits(ended: list[TtftSplit], pending: list[TtftSplit]) -> TtftSplits:
    """The percentiles are of what ended; among the slowest are those that still wait, too."""
    totals = [(each.total, each) for each in (*ended, *pending) if each.total is not None]
    totals.sort(key=lambda pair: -pair[0])
    slowest = [each for _, each in totals[: math.ceil(len(totals) * SLOWEST_SHARE)]]
    return TtftSplits(
        p50=_quantiles(ended, 0.5),
        p95=_quantiles(ended, 0.95),
        slowest=_mean(slowest) if slowest else None,
        slowest_requests=len(slowest),
        requests=len(totals),
    )


def _quantiles(splits: list[TtftSplit], share: float) -> TtftSplit:
    """Of each part for itself: these do not sum up."""
    return TtftSplit(**{part: _quantile(_known(splits, part), share) for part in PARTS})


def _known(splits: Iterable[TtftSplit], part: str) -> list[float]:
    values = (getattr(split, part) for split in splits)
    return sorted(value for value in values if value is not None)


def _quantile(ordered: list[float], share: float) -> float | None:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _mean(splits: list[TtftSplit]) -> TtftSplit:
    """All of them have all parts, so the means sum up too."""
    means = {part: sum(_known(splits, part)) / len(splits) for part in PARTS[:-1]}
    return summed(*(means[part] for part in PARTS[:-1]))
