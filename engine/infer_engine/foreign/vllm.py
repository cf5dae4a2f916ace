"""vLLM: its metrics under today's names and those of before (V0, and V1 until the prefix ``gpu_`` went)."""

from collections.abc import Mapping
from typing import Any

from infer_engine.foreign.asking import Answer, entry, integer, text
from infer_engine.foreign.page import Labels, Page
from infer_engine.foreign.reading import MAX_ENGINES, Counts, Engine, Reading, row_id, tally, whole
from infer_engine.protocol import Kv

PATHS = ("/metrics", "/health", "/version", "/v1/models")

RUNNING = ("vllm:num_requests_running",)
WAITING = ("vllm:num_requests_waiting",)
WAITING_BY_REASON = ("vllm:num_requests_waiting_by_reason",)
KV_USED = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
KV_CONFIG = ("vllm:cache_config_info",)
SLEEP = ("vllm:engine_sleep_state",)
FINISHED = ("vllm:request_success_total",)
STARTED = ("process_start_time_seconds",)
#: Our name, and the series that tell it, the newest first.
COUNTERS = {
    "generated": ("vllm:generation_tokens_total",),
    "prompt": ("vllm:prompt_tokens_total",),
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "steps": ("vllm:iteration_tokens_total_count",),
}
HISTOGRAMS = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "queue": ("vllm:request_queue_time_seconds",),
}
REASONS = {"abort": "cancelled"}


def read(answers: Mapping[str, Answer], page: Page) -> Reading:
    bad = _unwell(answers["/health"])
    model = entry(answers["/v1/models"].json(), "data", 0)
    engines = [_engine(own, rank, bad) for rank, own in page.ranks(RUNNING, "engine", MAX_ENGINES).items()]
    models = sorted({labels["model_name"] for labels, _ in page.of(RUNNING) if "model_name" in labels})
    finished: dict[str, int] = {}
    for reason, count in tally(page.by_label(FINISHED, "finished_reason", _any)).items():
        name = REASONS.get(reason, reason)
        finished[name] = finished.get(name, 0) + count
    return Reading(
        product="vLLM",
        model=", ".join(models)[:200] or text(entry(model, "id")) or "–",
        version=text(entry(answers["/version"].json(), "version")),
        context_length=integer(entry(model, "max_model_len")),
        engines=engines,
        finished=finished,
        started_at=page.value(STARTED, _any, highest=True),
        note="" if page.samples else "its /metrics tells nothing",
    )


def _engine(page: Page, rank: str | None, error: str | None) -> Engine:
    """``page`` has this rank's samples alone."""
    used = page.value(KV_USED, _any)
    # What is no share is as good as not told.
    ratio = used if used is not None and 0.0 <= used <= 1.0 else None
    asleep = [
        labels.get("sleep_state", "")
        for labels, value in page.of(SLEEP)
        if value and labels.get("sleep_state") != "awake"
    ]
    reasons = page.by_label(WAITING_BY_REASON, "reason", _any)
    return Engine(
        id=row_id(rank or "0"),
        state="drained" if asleep else "failed" if error else "ready",
        running=whole(page.value(RUNNING, _any)),
        waiting=whole(page.value(WAITING, _any)),
        kv=_kv(page, ratio),
        kv_used_ratio=ratio,
        counts=Counts(
            counters={
                name: value
                for name, series in COUNTERS.items()
                if (value := page.value(series, _any)) is not None
            },
            histograms={
                name: buckets
                for name, series in HISTOGRAMS.items()
                if (buckets := page.buckets(series, _any))
            },
        ),
        waiting_reasons={reason: count for reason, count in tally(reasons).items() if count},
        error=f"asleep ({asleep[0][:40]})" if asleep else error,
    )


def _kv(page: Page, ratio: float | None) -> Kv:
    """Blocks. Which of those not in use still hold a prefix is not told: so neither is what is free."""
    for labels, _ in page.of(KV_CONFIG):
        total, size = _number(labels.get("num_gpu_blocks")), _number(labels.get("block_size"))
        if total is not None and total > 1 and page.of(KV_USED[:1]):
            total -= 1  # one is never given to anybody, and its share is of the others
        used = None if total is None or ratio is None else round(ratio * total)
        return Kv(block_size=size, total=total, used=used)
    return Kv()


def _number(given: Any) -> int | None:
    is_number = isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 15
    return int(given) if is_number and int(given) > 0 else None


def _unwell(health: Answer) -> str | None:
    return f"/health answers {health.status}" if health.offered and health.status >= 500 else None


def _any(_labels: Labels) -> bool:
    return True
