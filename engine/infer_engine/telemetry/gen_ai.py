"""OpenTelemetry's histograms for a server of generative models, under the names that its rules give them on a
Prometheus page.

Names, attributes and bounds: OpenTelemetry semantic conventions for generative AI, metrics of a model server
(status: development). Test traffic is left out. Each is taken once, when its request ends.
"""

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from infer_engine.fleet.generation import Generation
from infer_engine.telemetry.histograms import Histogram, bounds

DURATION_S = bounds("0.01 0.02 0.04 0.08 0.16 0.32 0.64 1.28 2.56 5.12 10.24 20.48 40.96 81.92")
PER_TOKEN_S = bounds("0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5")
FIRST_TOKEN_S = bounds("0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10")

_LABELS = (
    "gen_ai_operation_name",
    "gen_ai_provider_name",
    "gen_ai_request_model",
    "gen_ai_response_model",
)
PROVIDER = "infer-console"
#: How a failed request is told where its code is not one of ours.
OTHER = "_OTHER"
#: Most different values of ``error_type``: codes are ours and few, and nothing may make them many.
MOST_ERRORS = 50


class GenAi:
    def __init__(self, model: str) -> None:
        self._model = model
        self._durations: dict[tuple[str, str], Histogram] = {}
        self._per_token: dict[str, Histogram] = {}
        self._first_token: dict[str, Histogram] = {}

    def ended(self, generation: Generation, now_s: float) -> None:
        """``now_s`` on the fleet's clock."""
        spec = generation.spec
        if spec.synthetic:
            return
        error = ""
        if generation.finish_reason in ("error", "cancelled"):
            error = generation.error_code or OTHER
            if (spec.operation, error) not in self._durations and len(self._durations) >= MOST_ERRORS:
                error = OTHER
        duration_s = now_s - generation.arrived_s
        self._durations.setdefault((spec.operation, error), Histogram(DURATION_S)).observe(duration_s)
        times_s = generation.emitted_s
        if times_s:
            first = self._first_token.setdefault(spec.operation, Histogram(FIRST_TOKEN_S))
            first.observe(times_s[0] - generation.arrived_s)
        if len(times_s) > 1:
            per_token = self._per_token.setdefault(spec.operation, Histogram(PER_TOKEN_S))
            per_token.observe((times_s[-1] - times_s[0]) / (len(times_s) - 1))

    def collect(self) -> Iterator[Metric]:
        durations = HistogramMetricFamily(
            "gen_ai_server_request_duration_seconds",
            "Arrival to the end; error_type is empty where it succeeded.",
            labels=(*_LABELS, "error_type"),
        )
        for (operation, error), histogram in self._durations.items():
            durations.add_metric([*self._labels(operation), error], histogram.buckets(), histogram.sum)
        yield durations
        for name, help_text, histograms in (
            ("gen_ai_server_time_to_first_token_seconds", "Arrival to first token.", self._first_token),
            (
                "gen_ai_server_time_per_output_token_seconds",
                "First to last token, divided by the tokens after the first.",
                self._per_token,
            ),
        ):
            family = HistogramMetricFamily(name, help_text, labels=_LABELS)
            for operation, histogram in histograms.items():
                family.add_metric(self._labels(operation), histogram.buckets(), histogram.sum)
            yield family

    def _labels(self, operation: str) -> list[str]:
        return [operation, PROVIDER, self._model, self._model]
