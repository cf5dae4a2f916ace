"""Requests that ended, on their way to becoming traces: sampled, in a bounded queue, exported by a thread
that nothing waits for."""

import importlib.util
import logging
import random
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation
from infer_engine.fleet.trace_parent import TraceParent
from infer_engine.telemetry.request_trace import RequestTrace, trace_of

log = logging.getLogger(__name__)

#: Requests that wait for the collector, about 10 KB each; of more the newest are dropped.
MOST_QUEUED = 2_048
BATCH = 128
#: A batch is looked for this often. A request's last moments, such as the sending of a whole answer, come
#: just after its end.
PERIOD_S = 1.0
#: What the end of the server may take for the traces that are left.
GOODBYE_S = 2.0
DEFAULT_PATH = "/v1/traces"
_PARTS = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


class Exporter(Protocol):
    def export(self, traces: Sequence[tuple[RequestTrace, TraceParent | None]]) -> bool: ...

    def stop(self) -> None: ...


class _Ended(NamedTuple):
    generation: Generation
    #: When it arrived, in Unix seconds.
    arrived_at: float


def collector_url(given: str) -> str:
    """With the path that collectors listen on where none is given. ValueError saying what does not fit."""
    try:
        parts = urlsplit(given)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"otlp: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"otlp: {given!a} is not http(s)://HOST:PORT[/path]")
    if parts.username is not None or parts.password is not None:
        raise ValueError("otlp: a URL is no place for a secret; use OTEL_EXPORTER_OTLP_HEADERS")
    return given if parts.path not in ("", "/") else given.rstrip("/") + DEFAULT_PATH


def require_libraries() -> None:
    """ValueError naming the extra where they are not installed."""
    try:
        missing = [name for name in _PARTS if importlib.util.find_spec(name) is None]
    except ModuleNotFoundError:
        missing = ["opentelemetry"]
    if missing:
        raise ValueError(
            "otlp is given, but the OpenTelemetry exporter is not installed: "
            "pip install 'infer-console[otel]'"
        )


class OtlpTraces(Collector):
    """``start`` and ``close`` belong together. A client's traceparent decides whether its request is kept,
    and ``sample_ratio`` for those without. Test traffic is left out."""

    def __init__(self, fleet: Fleet, exporter: Exporter, *, model: str, sample_ratio: float) -> None:
        self._fleet = fleet
        self._exporter = exporter
        self._model = model
        self._sample_ratio = sample_ratio
        self._queue: deque[_Ended] = deque()
        self._closing = threading.Event()
        # A daemon: a collector that hangs must not keep the process.
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self.counts: Counter[str] = Counter()
        self._answers: bool | None = None

    def start(self) -> None:
        self._fleet.on_finish(self._finished)
        self._thread.start()

    def close(self) -> None:
        """Blocks for GOODBYE_S at most: what the collector has not taken by then is lost."""
        self._closing.set()
        self._thread.join(GOODBYE_S)
        self._exporter.stop()

    def _finished(self, generation: Generation) -> None:
        """On the event loop; only notes it."""
        parent = generation.spec.trace_parent
        if generation.spec.synthetic or self._closing.is_set():
            return
        if not (random.random() < self._sample_ratio if parent is None else parent.sampled):
            return
        if len(self._queue) >= MOST_QUEUED:
            self.counts["dropped"] += 1
            return
        self._queue.append(_Ended(generation, self._fleet.moment(generation.arrived_s)))

    def _run(self) -> None:
        last = False
        while not last:
            last = self._closing.wait(PERIOD_S)
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
                self._export([(self._trace(each), each.generation.spec.trace_parent) for each in batch])

    def _trace(self, ended: _Ended) -> RequestTrace:
        generation = ended.generation
        timeline = generation.log.document(
            generation.id,
            lambda at_s: ended.arrived_at + at_s - generation.arrived_s,
            simulated=self._fleet.is_simulated,
        )
        return trace_of(generation, timeline, self._model)

    def _export(self, traces: list[tuple[RequestTrace, TraceParent | None]]) -> None:
        try:
            taken = self._exporter.export(traces)
        except Exception as error:  # noqa: BLE001 -- whatever the libraries do, the next batch gets its turn
            log.warning("otlp: %s: %s", type(error).__name__, error)
            taken = False
        self.counts["exported" if taken else "failed"] += len(traces)
        if taken != self._answers:
            self._answers = taken
            if taken:
                log.info("otlp: the collector takes traces")
            else:
                log.warning("otlp: the collector takes no traces; those are lost until it does")

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "infer_otlp_traces",
            "Requests as traces: exported, failed (the collector's doing), dropped (the queue was full).",
            labels=("outcome",),
        )
        for outcome in ("exported", "failed", "dropped"):
            family.add_metric([outcome], self.counts[outcome])
        yield family
