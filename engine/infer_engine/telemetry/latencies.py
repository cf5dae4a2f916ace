"""Histograms of what the fleet measures, by replica: first tokens, gaps between tokens, waits, steps. Test
traffic is left out."""

from collections.abc import Collection, Iterator, Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from infer_engine.fleet.measures import Measure, Sample
from infer_engine.telemetry.families import REPLICA_LABELS
from infer_engine.telemetry.histograms import ITL_S, REQUEST_S, STEP_S, TTFT_S, Histogram

_HISTOGRAMS: dict[Measure, tuple[str, str, Sequence[float]]] = {
    "ttft": ("vllm:time_to_first_token_seconds", "Arrival to first token.", TTFT_S),
    "itl": ("vllm:inter_token_latency_seconds", "Token to next token of a request.", ITL_S),
    "queue_wait": ("vllm:request_queue_time_seconds", "Arrival to first admission.", REQUEST_S),
    "e2e": ("vllm:e2e_request_latency_seconds", "Arrival to the end.", REQUEST_S),
    "step": ("infer_step_duration_seconds", "Duration of engine steps.", STEP_S),
}


class Latencies:
    def __init__(self, model: str) -> None:
        self._model = model
        self._of: dict[tuple[Measure, str], Histogram] = {}

    def sampled(self, sample: Sample) -> None:
        """Called once a token: an increment is all that it costs."""
        if sample.synthetic:
            return
        key = (sample.measure, sample.replica)
        histogram = self._of.get(key)
        if histogram is None:
            histogram = self._of[key] = Histogram(_HISTOGRAMS[sample.measure][2])
        histogram.observe(sample.value_s, sample.times)

    def collect(self, replicas: Collection[str]) -> Iterator[Metric]:
        """Of these; one of which nothing was measured yet has empty histograms."""
        for measure, (name, help_text, bounds) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(name, help_text, labels=REPLICA_LABELS)
            for replica in replicas:
                histogram = self._of.get((measure, replica)) or Histogram(bounds)
                family.add_metric([self._model, replica], histogram.buckets(), histogram.sum)
            yield family
