"""What was measured: latencies and rates per replica, and samples for those who keep histograms of their own.

Figures over the last minute cover users' requests; only where there was none do they cover test traffic.
TTFT and queue wait include those still waiting, with their present age.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import Percentiles, PreemptMode, QueueWait, Tier
from infer_engine.telemetry.windows import LatencyWindow, RateWindow, percentiles, quantile, with_ages

#: tokens_per_s is the rate over this span.
TOKEN_RATE_SPAN_S = 5.0
#: Span of the latency windows and of preemptions per minute.
WINDOW_S = 60.0

#: ttft: arrival to first token; itl: token to token; queue_wait: arrival to admission; e2e: arrival to end;
#: step: an engine step.
Measure = Literal["ttft", "itl", "queue_wait", "e2e", "step"]


@dataclass(frozen=True, slots=True)
class Sample:
    measure: Measure
    replica: str
    value_s: float
    synthetic: bool = False
    #: How many of this value came at once: all streams of a step have the same ITL.
    times: int = 1


class Latency:
    """One latency of one replica over the last minute, users' requests and test traffic apart."""

    def __init__(self) -> None:
        self._real = LatencyWindow(WINDOW_S)
        self._synthetic = LatencyWindow(WINDOW_S)

    def add(self, value_s: float, now_s: float, *, synthetic: bool, times: int = 1) -> None:
        (self._synthetic if synthetic else self._real).add(value_s, now_s, times)

    def counts(self, now_s: float, *, synthetic: bool) -> Counter[int]:
        return (self._synthetic if synthetic else self._real).counts(now_s)


class ReplicaMeasures:
    """Counts since the server's start, over all lives of the replica; windows over the last minute."""

    def __init__(self, replica: str, now_s: float, tell: Callable[[Sample], None]) -> None:
        self.ttft = Latency()
        self.itl = Latency()
        self.queue_wait = Latency()
        self.token_rate = RateWindow(TOKEN_RATE_SPAN_S, now_s)
        self.preemption_rate = RateWindow(WINDOW_S, now_s)
        self.batch_preemption_rate = RateWindow(WINDOW_S, now_s)
        self.generated_tokens = 0
        self.prefill_tokens = 0
        self.decode_tokens = 0
        self.prompt_tokens = 0
        self.preemptions_by_mode: Counter[PreemptMode] = Counter()
        self.swapped_out_bytes = 0
        self.swapped_in_bytes = 0
        self.steps = 0
        #: Tokens looked up in the prefix cache at first admissions, and how many of them were found.
        self.prefix_queries_tokens = 0
        self.prefix_hit_tokens = 0
        #: Cached blocks reused for something else.
        self.evicted_blocks = 0
        #: How often it was ended because it had stalled.
        self.stalls = 0
        #: Requests that ended here, by reason.
        self.finished: Counter[str] = Counter()
        self._replica = replica
        self._tell = tell

    def admitted(self, request: Tracked, wait_s: float, now_s: float) -> None:
        synthetic = request.generation.spec.synthetic
        self.queue_wait.add(wait_s, now_s, synthetic=synthetic)
        self.prompt_tokens += len(request.generation.spec.prompt)
        self._tell(Sample("queue_wait", self._replica, wait_s, synthetic))

    def emitted(self, tokens: int, now_s: float) -> None:
        """So many tokens have just come, of whichever requests."""
        self.generated_tokens += tokens
        self.token_rate.add(tokens, now_s)

    def first_token(self, request: Tracked, now_s: float) -> None:
        synthetic = request.generation.spec.synthetic
        ttft_s = now_s - request.generation.arrived_s
        self.ttft.add(ttft_s, now_s, synthetic=synthetic)
        self._tell(Sample("ttft", self._replica, ttft_s, synthetic))

    def next_tokens(self, intervals: Mapping[tuple[float, bool], int], now_s: float) -> None:
        """Tokens that followed others: how many, by the seconds since the one before and by whether it is
        test traffic."""
        for (itl_s, synthetic), times in intervals.items():
            self.itl.add(itl_s, now_s, synthetic=synthetic, times=times)
            self._tell(Sample("itl", self._replica, itl_s, synthetic, times))

    @property
    def preemptions(self) -> int:
        return self.preemptions_by_mode.total()

    def preempted(self, mode: PreemptMode, tier: Tier, now_s: float) -> None:
        self.preemptions_by_mode[mode] += 1
        self.preemption_rate.add(1, now_s)
        if tier == "batch":
            self.batch_preemption_rate.add(1, now_s)

    def looked_up(self, queries_tokens: int, hit_tokens: int) -> None:
        self.prefix_queries_tokens += queries_tokens
        self.prefix_hit_tokens += hit_tokens

    @property
    def prefix_hit_ratio(self) -> float | None:
        """None where nothing was looked up yet."""
        return self.prefix_hit_tokens / self.prefix_queries_tokens if self.prefix_queries_tokens else None

    def stepped(self, duration_s: float, prefill_tokens: int, decode_tokens: int) -> None:
        self.steps += 1
        self.prefill_tokens += prefill_tokens
        self.decode_tokens += decode_tokens
        if duration_s > 0:  # how long a step takes elsewhere is not known
            self._tell(Sample("step", self._replica, duration_s))

    def ended(self, request: Tracked, now_s: float) -> None:
        generation = request.generation
        self.finished[generation.finish_reason or "error"] += 1
        self._tell(Sample("e2e", self._replica, now_s - generation.arrived_s, generation.spec.synthetic))


def ttft_figures(parts: Iterable[Latency], requests: Iterable[Tracked], now_s: float) -> Percentiles:
    pending = [request for request in requests if not request.generation.emitted]
    return percentiles(_merged(parts, pending, now_s))


def itl_figures(parts: Iterable[Latency], now_s: float) -> Percentiles:
    return percentiles(_merged(parts, [], now_s))


def queue_figures(parts: Iterable[Latency], requests: Iterable[Tracked], now_s: float) -> QueueWait:
    """``oldest`` is the longest present wait, of preempted requests too; None when nobody waits."""
    requests = list(requests)
    waiting = [request for request in requests if request.generation.admitted_s is None]
    counts = _merged(parts, waiting, now_s)
    oldest = max((now_s - each.waiting_since_s for each in requests if each.state == "waiting"), default=None)
    return QueueWait(p50=quantile(counts, 0.5), p99=quantile(counts, 0.99), oldest=oldest)


def wait_p95(parts: Iterable[Latency], requests: Iterable[Tracked], now_s: float) -> float | None:
    """Of the wait for admission, those still waiting included; None when there was nobody."""
    waiting = [request for request in requests if request.generation.admitted_s is None]
    return quantile(_merged(parts, waiting, now_s), 0.95)


def _merged(parts: Iterable[Latency], pending: Iterable[Tracked], now_s: float) -> Counter[int]:
    parts, pending = list(parts), list(pending)
    for synthetic in (False, True):
        counts: Counter[int] = Counter()
        for part in parts:
            if found := part.counts(now_s, synthetic=synthetic):
                counts.update(found)
        ages = [
            now_s - each.generation.arrived_s
            for each in pending
            if each.generation.spec.synthetic == synthetic
        ]
        if counts or ages:
            return with_ages(counts, ages)
    return Counter()


class Measures:
    """All replicas' measures, and who hears of each sample (in the server's loop; must not block or
    raise)."""

    def __init__(self, replicas: Iterable[str], now_s: float) -> None:
        self._listeners: list[Callable[[Sample], None]] = []
        #: Of replicas that are no more, so that the fleet's count only grows.
        self.retired_preemptions = 0
        self.of = {replica: ReplicaMeasures(replica, now_s, self._tell) for replica in replicas}

    def add(self, replica: str, now_s: float) -> None:
        self.of[replica] = ReplicaMeasures(replica, now_s, self._tell)

    def stalled(self, replica: str) -> None:
        self.of[replica].stalls += 1

    def retire(self, replica: str) -> None:
        self.retired_preemptions += self.of.pop(replica).preemptions

    def subscribe(self, listener: Callable[[Sample], None]) -> None:
        self._listeners.append(listener)

    def _tell(self, sample: Sample) -> None:
        for listener in self._listeners:
            listener(sample)
