"""vLLM's histograms of requests that ended, with vLLM's names, bounds and definitions (prefill: admission to
first token, preemptions included; decode: first to last token)."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from infer_engine.fleet.generation import Generation
from infer_engine.telemetry.histograms import ITL_S, REQUEST_S, Histogram, bounds

TOKENS = bounds("1 2 5 10 20 50 100 200 500 1000 2000 5000 10000 20000 50000 100000 200000")
COUNTS = bounds("1 2 3 4 5 10 20")


def _prefill_s(generation: Generation) -> float | None:
    if generation.admitted_s is None or not generation.emitted_s:
        return None
    return generation.emitted_s[0] - generation.admitted_s


def _decode_s(generation: Generation) -> float | None:
    times_s = generation.emitted_s
    return times_s[-1] - times_s[0] if times_s else None


def _inference_s(generation: Generation) -> float | None:
    if generation.admitted_s is None or not generation.emitted_s:
        return None
    return generation.emitted_s[-1] - generation.admitted_s


def _per_token_s(generation: Generation) -> float | None:
    decode_s, following = _decode_s(generation), len(generation.emitted_s) - 1
    return decode_s / following if decode_s is not None and following > 0 else None


#: name, help, bounds, value; a value of None is not observed.
_HISTOGRAMS: list[tuple[str, str, Sequence[float], Callable[[Generation], float | None]]] = [
    ("vllm:request_prompt_tokens", "Prompt tokens.", TOKENS, lambda each: len(each.spec.prompt)),
    ("vllm:request_generation_tokens", "Generated tokens.", TOKENS, lambda each: len(each.emitted)),
    ("vllm:request_params_max_tokens", "max_tokens asked for.", TOKENS, lambda each: each.spec.max_tokens),
    ("vllm:request_num_preemptions", "Preemptions of a request.", COUNTS, lambda each: each.preemptions),
    ("vllm:request_prefill_time_seconds", "Admission to first token.", REQUEST_S, _prefill_s),
    ("vllm:request_decode_time_seconds", "First to last token.", REQUEST_S, _decode_s),
    ("vllm:request_inference_time_seconds", "Admission to last token.", REQUEST_S, _inference_s),
    (
        "vllm:request_time_per_output_token_seconds",
        "Mean time per token after the first.",
        ITL_S,
        _per_token_s,
    ),
]


class VllmEnded:
    """By replica: the one where a request ended. Test traffic is left out, and so is what no replica had."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._of: dict[str, list[Histogram]] = {}

    def ended(self, generation: Generation) -> None:
        if generation.spec.synthetic or generation.replica is None:
            return
        histograms = self._of.get(generation.replica)
        if histograms is None:
            histograms = [Histogram(upper_bounds) for _, _, upper_bounds, _ in _HISTOGRAMS]
            self._of[generation.replica] = histograms
        for (_, _, _, value_of), histogram in zip(_HISTOGRAMS, histograms, strict=True):
            value = value_of(generation)
            if value is not None:
                histogram.observe(value)

    def collect(self) -> Iterator[Metric]:
        for index, (name, help_text, _, _) in enumerate(_HISTOGRAMS):
            family = HistogramMetricFamily(name, help_text, labels=("model_name", "engine"))
            for replica, histograms in self._of.items():
                histogram = histograms[index]
                family.add_metric([self._model, replica], histogram.buckets(), histogram.sum)
            yield family
