"""Whether figures of one minute agree: each of ours beside what others say, and how far apart sampling may
put them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from infer_engine.benchmark.statistics import percentile
from peers.witnesses import MINUTE_S, Sample

#: Minutes end a second apart at most, and counters move by a batch at a time.
RATE_SHARE = 0.05
#: Two looks back over a minute begin and end up to so much apart.
EDGE_S = 2.0
#: Clients also wait for HTTP.
HTTP_SHARE = 0.15
#: A gauge's mean is this many standard errors from another's at most.
ERRORS = 3.0
SHARES = (0.50, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one of them says of a figure, and how far from it ours may be; None: shown, not judged. ``ours``
    where that is of another moment than the one shown."""

    value: float | None
    allowed: float | None = None
    ours: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    figure: str
    ours: float | None
    htop: Said
    log: Said
    clients: Said

    @property
    def agrees(self) -> bool:
        """With each whose word is judged."""
        judged = [each for each in (self.htop, self.log, self.clients) if each.allowed is not None]
        return all(
            self.ours is not None
            and each.value is not None
            and abs((self.ours if each.ours is None else each.ours) - each.value) <= (each.allowed or 0.0)
            for each in judged
        )


NOTHING = Said(value=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """Samples up to its end, and from before its beginning; the last of ``htop`` is its end. ``clients`` is
    what they saw in it, ``bounds`` are those of the server's buckets by figure."""

    ours: Sequence[Sample]
    htop: Sequence[Sample]
    log: Sequence[Sample]
    clients: "Seen"
    bounds: dict[str, list[float]]

    @property
    def end_at(self) -> float:
        return self.htop[-1].at

    def within(self, samples: Sequence[Sample]) -> list[Sample]:
        return [sample for sample in samples if sample.at > self.end_at - MINUTE_S]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """By clients: seconds to each first token, between tokens, and their mean in each answer that ended."""

    tokens_per_s: float
    ttft_s: list[float]
    gaps_s: list[float]
    mean_gaps_s: list[float]


def rows(minute: Minute) -> list[Row]:
    found = [
        _gauge("running", minute, lambda sample: sample.running),
        _gauge("waiting", minute, lambda sample: sample.waiting),
        _gauge("KV used, %", minute, lambda sample: sample.kv_percent),
        _rate(minute),
    ]
    ours, htop, seen = _nearest(minute.ours, minute.end_at), minute.htop[-1], minute.clients
    for share in SHARES:
        told = _estimate("TTFT", share, ours.ttft_s, seen.ttft_s, minute.bounds["ttft"], htop.ttft_s)
        found.append(told)
    for share in SHARES:
        found.append(_estimate("ITL", share, ours.itl_s, seen.gaps_s, minute.bounds["itl"], {}))
    return [*found, _mean_gap(minute)]


def _gauge(figure: str, minute: Minute, of: Callable[[Sample], float | None]) -> Row:
    ours = _told(minute.within(minute.ours), of)
    error = pstdev(ours) if ours else 0.0

    def said(samples: Sequence[Sample]) -> Said:
        values = _told(minute.within(samples), of)
        if not values or not ours:
            return Said(value=None, allowed=0.0)
        # The log rounds to one decimal place.
        allowed = ERRORS * error * math.sqrt(1 / len(values) + 1 / len(ours)) + 0.05
        return Said(value=fmean(values), allowed=allowed)

    mean = fmean(ours) if ours else None
    return Row(figure=figure, ours=mean, htop=said(minute.htop), log=said(minute.log), clients=NOTHING)


def _rate(minute: Minute) -> Row:
    """Of a minute as a whole. All three tell averages over ten seconds: those at its end, ten seconds before,
    and so on. The log's minute ends with its last line, up to ten seconds earlier."""

    def said(value: float | None, ours: float | None = None) -> Said:
        return Said(value=value, allowed=RATE_SHARE * (value or 0.0), ours=ours)

    log_end_at = minute.log[-1].at if minute.log else minute.end_at
    return Row(
        figure="tokens/s",
        ours=_rate_to(minute.ours, minute.end_at),
        htop=said(_rate_to(minute.htop, minute.end_at)),
        log=said(_rate_to(minute.log, log_end_at), _rate_to(minute.ours, log_end_at)),
        clients=said(minute.clients.tokens_per_s),
    )


def _rate_to(samples: Sequence[Sample], end_at: float) -> float | None:
    if not samples:
        return None
    tiles = [_nearest(samples, end_at - 10.0 * number).tokens_per_s for number in range(6)]
    told = [tile for tile in tiles if tile is not None]
    return fmean(told) if told else None


def _estimate(
    name: str,
    share: float,
    ours: dict[float, float | None],
    exact: list[float],
    bounds: list[float],
    htop: dict[float, float | None],
) -> Row:
    """``htop`` where it tells the same, out of the same buckets."""
    mine, theirs = ours.get(share), htop.get(share)
    truth = percentile(exact, share) if exact else None
    if mine is None or truth is None:
        judged = [Said(value=theirs, allowed=0.0), Said(value=truth, allowed=0.0)]
    else:
        low, high = _bucket(mine, bounds)
        moved = math.ceil(len(exact) * EDGE_S / 60) + 1
        inside = sum(low < value <= high for value in exact)
        edge = (high - low) * min(1.0, moved / max(1, inside))
        judged = [
            Said(value=theirs, allowed=edge),
            # An estimate is as good as its bucket is narrow.
            Said(value=truth, allowed=high - low + HTTP_SHARE * truth),
        ]
    return Row(
        figure=f"{name} p{share * 100:.0f}, s",
        ours=mine,
        htop=judged[0] if share in htop else NOTHING,
        log=NOTHING,
        clients=judged[1],
    )


def _mean_gap(minute: Minute) -> Row:
    """What vllm-htop calls TPOT. The console does not tell it: here is why its ITL is another figure."""
    means, share = minute.clients.mean_gaps_s, 0.95
    return Row(
        figure=f"mean gap of each answer, p{share * 100:.0f}, s",
        ours=None,
        htop=Said(value=minute.htop[-1].itl_s.get(share)),
        log=NOTHING,
        clients=Said(value=percentile(means, share) if means else None),
    )


def _nearest(samples: Sequence[Sample], at: float) -> Sample:
    return min(samples, key=lambda sample: abs(sample.at - at))


def _bucket(value: float, bounds: list[float]) -> tuple[float, float]:
    """The bounds of the bucket that ``value`` is in."""
    finite = sorted(bound for bound in bounds if math.isfinite(bound))
    high = next((bound for bound in finite if bound >= value), finite[-1])
    return max((bound for bound in finite if bound < high), default=0.0), high


def _told(samples: Sequence[Sample], of: Callable[[Sample], float | None]) -> list[float]:
    return [value for sample in samples if (value := of(sample)) is not None]


def table(compared: Sequence[Row]) -> str:
    """Markdown. ``±`` is how far ours may be from it; what has none is shown and not judged."""
    lines = [
        "| figure | infer-console | vllm-htop | vLLM's log | clients, exact | agrees |",
        "|---|---|---|---|---|---|",
    ]
    for row in compared:
        said = " | ".join(_cell(each) for each in (row.htop, row.log, row.clients))
        lines.append(f"| {row.figure} | {_number(row.ours)} | {said} | {_verdict(row)} |")
    return "\n".join(lines) + "\n"


def _verdict(row: Row) -> str:
    if row.ours is None and row.agrees:
        return "not told"
    return "yes" if row.agrees else "**no**"


def _cell(said: Said) -> str:
    if said.value is None:
        return "–"
    return _number(said.value) + (f" ± {_number(said.allowed)}" if said.allowed is not None else "")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"
