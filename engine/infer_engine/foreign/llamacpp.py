"""llama.cpp's server: a row for the server, and its slots as the roster. Metrics need ``--metrics``; without
them what the slots tell is all there is."""

from collections.abc import Mapping
from typing import Any

from infer_engine.foreign.asking import Answer, entry, integer, text
from infer_engine.foreign.page import Labels, Page
from infer_engine.foreign.reading import MOST, Counts, Engine, Reading, whole
from infer_engine.protocol import Kv, RequestRow

PATHS = ("/metrics", "/slots", "/props", "/health")
#: A server with more slots than this is not one.
MAX_SLOTS = 4_096
#: It knows no tenants.
NOBODY = "–"

COUNTERS = {
    "generated": ("llamacpp:tokens_predicted_total",),
    "prompt": ("llamacpp:prompt_tokens_total",),
    "prefix_hits": ("llamacpp:prompt_tokens_cached_total",),
    "steps": ("llamacpp:n_decode_total",),
}


def read(answers: Mapping[str, Answer], page: Page) -> Reading:
    metrics, props = answers["/metrics"], answers["/props"].json()
    slots: list[Any] | None = None
    if isinstance(told := answers["/slots"].json(), list):
        slots = told[:MAX_SLOTS]
    model = text(entry(props, "model_alias")) or text(entry(props, "model_path")) or "–"
    notes = [] if metrics.offered else ["it tells no metrics: start it with --metrics"]
    notes += [] if answers["/slots"].offered else ["it tells no slots"]
    return Reading(
        product="llama.cpp",
        model=model.replace("\\", "/").rsplit("/", 1)[-1] or model,
        version=text(entry(props, "build_info")),
        context_length=integer(entry(props, "default_generation_settings", "n_ctx")),
        engines=[_engine(page, slots, props, answers["/health"])],
        note="; ".join(notes),
    )


def _engine(page: Page, slots: list[Any] | None, props: Any, health: Answer) -> Engine:
    rows = None if slots is None else _rows(slots)
    running = whole(page.value(("llamacpp:requests_processing",), _any))
    if running is None and slots is not None:
        running = sum(entry(slot, "is_processing") is True for slot in slots)
    counters = {
        name: value for name, series in COUNTERS.items() if (value := page.value(series, _any)) is not None
    }
    if "prefix_hits" in counters and "prompt" in counters:  # it counts what it computed, and what it found
        counters["prefix_queries"] = counters["prompt"] + counters["prefix_hits"]
    asleep = entry(props, "is_sleeping") is True
    loading = health.status == 503
    return Engine(
        id="e0",
        state="starting"
        if loading
        else "drained"
        if asleep
        else "failed"
        if health.status >= 500
        else "ready",
        running=running,
        waiting=whole(page.value(("llamacpp:requests_deferred",), _any)),
        max_running=integer(entry(props, "total_slots")) or (None if slots is None else len(slots)),
        kv=Kv() if slots is None else _kv(slots),
        counts=Counts(counters=counters, live=_live(counters, rows)),
        rows=rows,
        error="loading its model" if loading else "asleep" if asleep else None,
    )


def _live(counters: dict[str, float], rows: list[RequestRow] | None) -> dict[str, float]:
    """It counts a request's tokens when it has ended: those of the requests in its slots are added."""
    if rows is None or "generated" not in counters:
        return {}
    return {"generated": counters["generated"] + sum(row.generated_tokens for row in rows)}


def _rows(slots: list[Any]) -> list[RequestRow]:
    """Nobody's request is in two slots: of those that are told twice the last counts."""
    rows = [row for slot in slots if (row := slot_row(slot)) is not None]
    return list({row.id: row for row in rows}.values())


def slot_row(slot: Any) -> RequestRow | None:
    """The request that a slot works on. ``n_prompt_tokens`` grows with what is generated; how long it has
    been there is not told."""
    if entry(slot, "is_processing") is not True:
        return None
    task = integer(entry(slot, "id_task"))
    if task is None:
        return None
    # An object in the place of the list in servers of before.
    decoded = integer(entry(slot, "next_token", 0, "n_decoded"))
    decoded = decoded if decoded is not None else integer(entry(slot, "next_token", "n_decoded")) or 0
    length = integer(entry(slot, "n_prompt_tokens")) or 0
    computed = _computed(slot)
    most = integer(entry(slot, "params", "n_predict"))
    return RequestRow(
        id=f"task-{task}",
        tenant=NOBODY,
        tier="interactive",
        replica="e0",
        state="running",
        phase="decode" if decoded else "prefill",
        prompt_tokens=max(0, length - decoded),
        generated_tokens=decoded,
        kv_blocks=computed + decoded,
        age_s=0.0,
        max_tokens=most or None,
        computed_tokens=computed + decoded,
        cached_tokens=integer(entry(slot, "n_prompt_tokens_cache")) or 0,
    )


def _computed(slot: Any) -> int:
    processed = integer(entry(slot, "n_prompt_tokens_processed")) or 0
    return processed + (integer(entry(slot, "n_prompt_tokens_cache")) or 0)


def _kv(slots: list[Any]) -> Kv:
    """In tokens: what the slots may hold, what those at work hold, and what the others keep for whoever
    begins alike."""
    contexts = [integer(entry(slot, "n_ctx")) for slot in slots]
    total = sum(each or 0 for each in contexts)
    if not 0 < total < MOST or None in contexts:
        return Kv()
    working = [row.kv_blocks for slot in slots if (row := slot_row(slot)) is not None]
    kept = [
        integer(entry(slot, "n_prompt_tokens")) or 0
        for slot in slots
        if entry(slot, "is_processing") is not True
    ]
    used = min(total, sum(working))
    cached = min(total - used, sum(kept))
    return Kv(block_size=1, total=total, used=used, cached=cached, free=total - used - cached)


def _any(_labels: Labels) -> bool:
    return True
