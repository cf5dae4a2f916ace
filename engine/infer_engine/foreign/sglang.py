"""SGLang, started with ``--enable-metrics``: schedulers tell by ``dp_rank``, latencies come from its front
end for all ranks together."""

from collections.abc import Callable, Mapping

from infer_engine.foreign.asking import Answer, entry, integer, text
from infer_engine.foreign.page import Labels, Page
from infer_engine.foreign.reading import MAX_ENGINES, Counts, Engine, Reading, row_id, whole
from infer_engine.protocol import Kv

#: Not /health: it may run a generation.
PATHS = ("/metrics", "/server_info", "/model_info", "/v1/models")

RUNNING = ("sglang:num_running_reqs",)
WAITING = ("sglang:num_queue_reqs",)
WAITING_FOR_GRAMMAR = ("sglang:num_grammar_queue_reqs",)
KV_USED = ("sglang:token_usage",)
KV_USED_TOKENS = ("sglang:kv_used_tokens", "sglang:num_used_tokens")
KV_CACHED_TOKENS = ("sglang:kv_evictable_tokens",)
KV_TOTAL_TOKENS = ("sglang:max_total_num_tokens",)
KV_PAGE = ("sglang:page_size",)
CONTEXT = ("sglang:context_len",)
THROUGHPUT = ("sglang:gen_throughput",)
REQUESTS = ("sglang:num_requests_total",)
ABORTED = ("sglang:num_aborted_requests_total",)
REALTIME = ("sglang:realtime_tokens_total",)
STARTED = ("process_start_time_seconds",)
#: Of a scheduler.
COUNTERS = {"preemptions": ("sglang:num_retracted_requests_total",)}
#: Of the front end: with every rank's requests in them.
SHARED_COUNTERS = {
    "generated": ("sglang:generation_tokens_total",),
    "prompt": ("sglang:prompt_tokens_total",),
    "prefix_queries": ("sglang:prompt_tokens_total",),
}
HISTOGRAMS = {
    "ttft": ("sglang:time_to_first_token_seconds",),
    "itl": ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
    "queue": ("sglang:queue_time_seconds",),
}


def read(answers: Mapping[str, Answer], page: Page) -> Reading:
    server, model = answers["/server_info"].json(), answers["/model_info"].json()
    listed = entry(answers["/v1/models"].json(), "data", 0)
    models = sorted({labels["model_name"] for labels, _ in page.of(RUNNING) if "model_name" in labels})
    most = integer(entry(server, "max_running_requests"))
    ranks = page.ranks(RUNNING, "dp_rank", MAX_ENGINES)
    ended, aborted = whole(page.value(REQUESTS, _any)), whole(page.value(ABORTED, _any))
    context = integer(entry(listed, "max_model_len")) or whole(page.value(CONTEXT, _any, highest=True))
    return Reading(
        product="SGLang",
        model=", ".join(models)[:200] or text(entry(model, "model_path")) or text(entry(listed, "id")) or "–",
        version=text(entry(server, "version")),
        context_length=context,
        engines=[_engine(own, rank, most if len(ranks) == 1 else None) for rank, own in ranks.items()],
        shared=Counts(counters=_shared(page), histograms=_histograms(page)),
        finished=_finished(ended, aborted),
        started_at=page.value(STARTED, _any, highest=True),
        note="" if page.samples else "it tells no metrics: start it with --enable-metrics",
    )


def _finished(ended: int | None, aborted: int | None) -> dict[str, int]:
    """It does not tell how a request ended, but for those that were aborted."""
    told: dict[str, int] = {}
    if ended is not None:
        told["ended"] = max(0, ended - (aborted or 0))
    if aborted is not None:
        told["cancelled"] = aborted
    return told


def _engine(page: Page, rank: str | None, most: int | None) -> Engine:
    """``page`` has this rank's samples alone. Ranks of tensor and pipeline parallelism tell the same thing
    several times: the highest counts."""

    def one(names: tuple[str, ...]) -> float | None:
        return page.value(names, _any, highest=True)

    running = whole(one(RUNNING))
    counters = {name: value for name, series in COUNTERS.items() if (value := one(series)) is not None}
    decoded = page.value(REALTIME, lambda labels: labels.get("mode") == "decode", highest=True)
    if decoded is not None:
        counters["generated"] = decoded
    throughput = one(THROUGHPUT)
    grammar = whole(one(WAITING_FOR_GRAMMAR))
    waiting = whole(one(WAITING))
    return Engine(
        id=row_id(rank or "0"),
        running=running,
        waiting=waiting if waiting is None else waiting + (grammar or 0),
        max_running=most,
        kv=_kv(one),
        kv_used_ratio=_share(one(KV_USED)),
        counts=Counts(counters=counters),
        waiting_reasons={"grammar": grammar} if grammar else {},
        # The gauge keeps its last value when nothing runs any more.
        tokens_per_s=0.0 if running == 0 and throughput is not None else throughput,
    )


def _share(told: float | None) -> float | None:
    return None if told is None else min(1.0, max(0.0, told))


def _kv(one: Callable[[tuple[str, ...]], float | None]) -> Kv:
    """Pages; a page is one token unless the server says otherwise."""
    size = max(1, whole(one(KV_PAGE)) or 1)
    total, used, cached = (
        whole(one(KV_TOTAL_TOKENS)),
        whole(one(KV_USED_TOKENS)),
        whole(one(KV_CACHED_TOKENS)),
    )
    share = _share(one(KV_USED))
    if used is None and total is not None and share is not None:
        used = round(share * total)
    if total is not None:  # more than all of it is in nobody's use
        used = None if used is None else min(used, total)
        cached = None if cached is None else min(cached, total)
    blocks = [None if tokens is None else tokens // size for tokens in (total, used, cached)]
    free = None
    if blocks[0] is not None and blocks[1] is not None and blocks[2] is not None:
        free = max(0, blocks[0] - blocks[1] - blocks[2])
    return Kv(block_size=size, total=blocks[0], used=blocks[1], cached=blocks[2], free=free)


def _shared(page: Page) -> dict[str, float]:
    told = {
        name: value
        for name, series in SHARED_COUNTERS.items()
        if (value := page.value(series, _any)) is not None
    }
    sources = page.by_label(("sglang:cached_tokens_total",), "cache_source", _any)
    if sources:
        # ``total`` is the sum of the others, where it is told.
        told["prefix_hits"] = sources.get("total", sum(sources.values()))
    else:
        hits = page.value(("sglang:cached_tokens_total",), _any)
        if hits is None:
            told.pop("prefix_queries", None)
        else:
            told["prefix_hits"] = hits
    return told


def _histograms(page: Page) -> dict[str, Mapping[float, float]]:
    return {name: buckets for name, series in HISTOGRAMS.items() if (buckets := page.buckets(series, _any))}


def _any(_labels: Labels) -> bool:
    return True
