"""``/metrics``: vLLM's names for the signals that vLLM has, so that its dashboards and routers work, and our
own.

Gauges are computed when they are asked for, from the same status that the console sees, so none can go stale.
Counters are the fleet's own; histograms are filled by its samples. Latency histograms leave test traffic
out, counters of work done do not. What is unknown has no sample: missing is not zero.

vLLM's labels are kept: ``engine`` is the replica's id.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from infer_engine.fleet.feed import FeedItem
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation
from infer_engine.fleet.measures import Measure, ReplicaMeasures, Sample
from infer_engine.protocol import (
    PROTOCOL_VERSION,
    Event,
    FinishReason,
    GatewayStatus,
    PreemptMode,
    Replica,
    ReplicaState,
    ScalingStatus,
    Status,
)
from infer_engine.protocol import Fleet as FleetStatus
from infer_engine.telemetry.gen_ai import GenAi
from infer_engine.telemetry.histograms import ITL_S, REQUEST_S, STEP_S, TTFT_S, Histogram
from infer_engine.telemetry.vllm_ended import VllmEnded

#: Lines that are written without leaving the event loop: some 20 ms.
MOST_SAMPLES_AT_ONCE = 2_000
_LABELS = ("model_name", "engine")
_STATES: tuple[ReplicaState, ...] = get_args(ReplicaState)
_PREEMPT_MODES: tuple[PreemptMode, ...] = get_args(PreemptMode)
_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)
#: Why a request waits that more memory or slots would help.
_CAPACITY = ("kv", "headroom", "slots", "token_budget")
#: vLLM's words for how a request ended.
_VLLM_REASON: dict[FinishReason, str] = {
    "stop": "stop",
    "length": "length",
    "cancelled": "abort",
    "error": "error",
}

_HISTOGRAMS: dict[Measure, tuple[str, str, Sequence[float]]] = {
    "ttft": ("vllm:time_to_first_token_seconds", "Arrival to first token.", TTFT_S),
    "itl": ("vllm:inter_token_latency_seconds", "Token to next token of a request.", ITL_S),
    "queue_wait": ("vllm:request_queue_time_seconds", "Arrival to first admission.", REQUEST_S),
    "e2e": ("vllm:e2e_request_latency_seconds", "Arrival to the end.", REQUEST_S),
    "step": ("infer_step_duration_seconds", "Duration of engine steps.", STEP_S),
}

#: name, help, value of a replica, for gauges of one number per replica.
_GAUGES: list[tuple[str, str, Callable[[Replica], float | None]]] = [
    ("vllm:num_requests_running", "Requests in the batch.", lambda each: each.running),
    ("vllm:num_requests_waiting", "Requests in the queue.", lambda each: each.waiting),
    ("vllm:kv_cache_usage_perc", "Used share of the KV blocks, 0 to 1.", lambda each: _kv_usage(each)),
    ("infer_requests_running", "Requests in the batch.", lambda each: each.running),
    ("infer_requests_waiting", "Requests in the queue.", lambda each: each.waiting),
    ("infer_kv_usage_ratio", "Used share of the KV blocks.", lambda each: _kv_usage(each)),
    ("infer_host_kv_blocks", "Blocks in host memory for preempted KV.", lambda each: each.kv.host_total),
    ("infer_host_kv_used_blocks", "Those in use.", lambda each: each.kv.host_used),
    ("infer_step_age_seconds", "Time since the last engine step.", lambda each: each.step_age_s),
]

#: name, help, value of a replica's measures, for counters of one number per replica.
_COUNTERS: list[tuple[str, str, Callable[[ReplicaMeasures], float]]] = [
    ("vllm:num_preemptions", "Preemptions.", lambda each: each.preemptions),
    ("vllm:prompt_tokens", "Prompt tokens of admitted requests.", lambda each: each.prompt_tokens),
    ("vllm:generation_tokens", "Generated tokens.", lambda each: each.generated_tokens),
    (
        "vllm:prefix_cache_queries",
        "Tokens looked up in the prefix cache at first admissions.",
        lambda each: each.prefix_queries_tokens,
    ),
    (
        "vllm:prefix_cache_hits",
        "Tokens found in the prefix cache at first admissions.",
        lambda each: each.prefix_hit_tokens,
    ),
    ("infer_cache_evicted_blocks", "Cached blocks reused.", lambda each: each.evicted_blocks),
    ("infer_preemptions", "Preemptions.", lambda each: each.preemptions),
    ("infer_steps", "Engine steps.", lambda each: each.steps),
    (
        "infer_swapped_out_bytes",
        "KV moved to host memory by preemptions.",
        lambda each: each.swapped_out_bytes,
    ),
    ("infer_swapped_in_bytes", "KV moved back from host memory.", lambda each: each.swapped_in_bytes),
]


class _Collected(CollectorRegistry):
    """Families that are there already, where an encoder wants a registry."""

    def __init__(self) -> None:
        super().__init__()
        self.families: list[Metric] = []

    def collect(self) -> Iterator[Metric]:
        return iter(self.families)


class Metrics(Collector):
    """One fleet's metrics. Costs a histogram increment per token, and one status per scrape."""

    def __init__(
        self,
        fleet: Fleet,
        model_name: str,
        gateway: Callable[[], GatewayStatus],
        others: Sequence[Collector] = (),
    ) -> None:
        """``others`` have a place on the page too."""
        self._fleet = fleet
        self._gateway = gateway
        self._model = model_name
        self._histograms: dict[tuple[Measure, str], Histogram] = {}
        self._rejected: Counter[str] = Counter()
        self._gen_ai = GenAi(model_name)
        self._ended = VllmEnded(model_name)
        #: By the replica that requests left, and why.
        self._moved: Counter[tuple[str, str]] = Counter()
        self._moved_tokens: Counter[tuple[str, str]] = Counter()
        self._registry = CollectorRegistry(auto_describe=False)
        for each in (self, *others):
            self._registry.register(each)
        fleet.measures.subscribe(self._sampled)
        fleet.feed.subscribe(self._happened)
        fleet.on_finish(self._finished)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that ``accept`` (the HTTP header) asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    async def page(self, accept: str) -> tuple[bytes, str]:
        """The same for an event loop that others need meanwhile: of a large fleet the page is megabytes, so
        it is made family by family, and written in a thread."""
        collected = _Collected()
        for family in self._registry.collect():
            collected.families.append(family)
            await asyncio.sleep(0)
        encode, content_type = choose_encoder(accept)
        if sum(len(family.samples) for family in collected.families) <= MOST_SAMPLES_AT_ONCE:
            return encode(collected), content_type
        return await asyncio.to_thread(encode, collected), content_type

    def collect(self) -> Iterator[Metric]:
        status = self._fleet.status()
        yield from self._gauges(status)
        yield from self._counters()
        yield from self._moves()
        yield from self._latencies()
        yield from self._ended.collect()
        yield from self._gen_ai.collect()
        yield from self._fleet_wide(status.fleet)

    def _moves(self) -> Iterator[Metric]:
        for name, help_text, counts in (
            ("infer_moves", "Requests that went on at another place.", self._moved),
            ("infer_move_recompute_tokens", "Tokens to compute again for it.", self._moved_tokens),
        ):
            family = CounterMetricFamily(name, help_text, labels=(*_LABELS, "reason"))
            for (replica, reason), count in sorted(counts.items()):
                family.add_metric([self._model, replica, reason], count)
            yield family

    def _sampled(self, sample: Sample) -> None:
        if sample.synthetic:
            return
        key = (sample.measure, sample.replica)
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = Histogram(_HISTOGRAMS[sample.measure][2])
        histogram.observe(sample.value_s, sample.times)

    def _finished(self, generation: Generation) -> None:
        self._gen_ai.ended(generation, self._fleet.now())
        self._ended.ended(generation)

    def _happened(self, item: FeedItem) -> None:
        if isinstance(item, Event) and item.kind == "reject":
            self._rejected[item.reason or "unknown"] += 1
        elif isinstance(item, Event) and item.kind == "move":
            left = (item.replica or "unknown", item.reason or "unknown")
            self._moved[left] += 1
            self._moved_tokens[left] += item.tokens or 0

    def _gauges(self, status: Status) -> Iterator[Metric]:
        for name, help_text, value_of in _GAUGES:
            family = GaugeMetricFamily(name, help_text, labels=_LABELS)
            for replica in status.replicas:
                _add(family, [self._model, replica.id], value_of(replica))
            yield family
        yield from self._replica_details(status)

    def _replica_details(self, status: Status) -> Iterator[Metric]:
        cache = GaugeMetricFamily(
            "vllm:cache_config_info", "The KV pool.", labels=(*_LABELS, "block_size", "num_gpu_blocks")
        )
        blocks = GaugeMetricFamily(
            "infer_kv_blocks",
            "KV blocks: free, used and cached add up to the pool; reserved is the headroom of admission.",
            labels=(*_LABELS, "state"),
        )
        vllm_reasons = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason",
            "Requests in the queue: capacity where memory or slots are short, deferred otherwise.",
            labels=(*_LABELS, "reason"),
        )
        reasons = GaugeMetricFamily(
            "infer_requests_waiting_by_reason", "Requests in the queue.", labels=(*_LABELS, "reason")
        )
        states = GaugeMetricFamily(
            "infer_replica_state", "1 for the state it is in.", labels=(*_LABELS, "state")
        )
        for replica in status.replicas:
            labels = [self._model, replica.id]
            kv = replica.kv
            if kv.block_size is not None and kv.total is not None:
                cache.add_metric([*labels, str(kv.block_size), str(kv.total)], 1)
            reserved = None if kv.total is None or kv.admit_limit is None else kv.total - kv.admit_limit
            for state, count in (
                ("free", kv.free),
                ("used", kv.used),
                ("cached", kv.cached),
                ("reserved", reserved),
            ):
                _add(blocks, [*labels, state], count)
            for reason, count in replica.waiting_reasons.items():
                reasons.add_metric([*labels, reason], count)
            if replica.waiting is not None:
                capacity = sum(replica.waiting_reasons.get(reason, 0) for reason in _CAPACITY)
                vllm_reasons.add_metric([*labels, "capacity"], capacity)
                vllm_reasons.add_metric([*labels, "deferred"], max(0, replica.waiting - capacity))
            for state in _STATES:
                states.add_metric([*labels, state], float(replica.state == state))
        yield from (cache, blocks, vllm_reasons, reasons, states)

    def _counters(self) -> Iterator[Metric]:
        measures = self._fleet.measures.of
        for name, help_text, value_of in _COUNTERS:
            family = CounterMetricFamily(name, help_text, labels=_LABELS)
            for replica, measured in measures.items():
                family.add_metric([self._model, replica], value_of(measured))
            yield family
        vllm_ends = CounterMetricFamily(
            "vllm:request_success", "Requests that ended.", labels=(*_LABELS, "finished_reason")
        )
        ends = CounterMetricFamily(
            "infer_requests_finished", "Requests that ended.", labels=(*_LABELS, "reason")
        )
        tokens = CounterMetricFamily(
            "infer_tokens",
            "Tokens: prompt of admitted requests, prefill computed (recomputation included), generated.",
            labels=(*_LABELS, "kind"),
        )
        modes = CounterMetricFamily("infer_preemptions_by_mode", "Preemptions.", labels=(*_LABELS, "mode"))
        for replica, measured in measures.items():
            labels = [self._model, replica]
            for mode in _PREEMPT_MODES:
                modes.add_metric([*labels, mode], measured.preemptions_by_mode[mode])
            for reason in _REASONS:
                vllm_ends.add_metric([*labels, _VLLM_REASON[reason]], measured.finished[reason])
                ends.add_metric([*labels, reason], measured.finished[reason])
            tokens.add_metric([*labels, "prompt"], measured.prompt_tokens)
            tokens.add_metric([*labels, "prefill"], measured.prefill_tokens)
            tokens.add_metric([*labels, "generated"], measured.generated_tokens)
        yield from (vllm_ends, ends, tokens, modes)

    def _latencies(self) -> Iterator[Metric]:
        for measure, (name, help_text, bounds) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(name, help_text, labels=_LABELS)
            for replica in self._fleet.measures.of:
                histogram = self._histograms.get((measure, replica)) or Histogram(bounds)
                family.add_metric([self._model, replica], histogram.buckets(), histogram.sum)
            yield family

    def _fleet_wide(self, fleet: FleetStatus) -> Iterator[Metric]:
        rejected = CounterMetricFamily(
            "infer_requests_rejected", "Requests refused.", labels=("model_name", "code")
        )
        for code, count in self._rejected.items():
            rejected.add_metric([self._model, code], count)
        yield rejected
        gateway = self._gateway()
        for name, help_text, value in (
            ("infer_requests_held", "Requests that no replica takes now.", len(self._fleet.held_rows())),
            ("infer_gateway_connections", "Open client connections.", gateway.connections),
            ("infer_gateway_loop_lag_seconds", "Worst delay of the event loop lately.", gateway.loop_lag_s),
            ("infer_event_loop_tasks", "Tasks of the server's event loop.", _tasks()),
        ):
            family = GaugeMetricFamily(name, help_text, labels=("model_name",))
            _add(family, [self._model], value)
            yield family
        yield from self._scaling(fleet.scaling)
        yield from self._simulation(fleet)
        build = GaugeMetricFamily(
            "infer_build_info", "What runs.", labels=("model_name", "version", "protocol_version")
        )
        build.add_metric([self._model, _version(), str(PROTOCOL_VERSION)], 1)
        yield build

    def _scaling(self, scaling: ScalingStatus | None) -> Iterator[Metric]:
        """The recommended count and what it is worked out of, for autoscalers and alarms."""
        if scaling is None:
            return
        for name, help_text, value in (
            ("infer_recommended_replicas", "Replicas that the demand calls for.", scaling.recommended),
            (
                "infer_scaling_queue_wait_p95_seconds",
                "Wait for admission over the last minute, those still waiting included.",
                scaling.queue_wait_p95_s,
            ),
            (
                "infer_scaling_kv_pressure_ratio",
                "KV blocks in use or waited for, as a share of what ready replicas admit.",
                scaling.kv_pressure,
            ),
            (
                "infer_scaling_kv_growth_replicas_per_minute",
                "Growth of that demand, in replicas' worth of KV.",
                scaling.kv_slope_per_min,
            ),
            ("infer_scaling_boot_seconds", "From a replica's start until it is ready.", scaling.boot_s),
        ):
            family = GaugeMetricFamily(name, help_text, labels=("model_name",))
            _add(family, [self._model], value)
            yield family

    def _simulation(self, fleet: FleetStatus) -> Iterator[Metric]:
        """1 where nothing on this page was measured on a GPU, so that no alarm is built on it by mistake."""
        simulation = fleet.simulation
        mark = GaugeMetricFamily(
            "infer_simulated",
            "1: no model computes here, and all durations are simulated seconds.",
            labels=("model_name", "deployment"),
        )
        mark.add_metric([self._model, simulation.deployment if simulation else ""], float(fleet.simulated))
        yield mark
        if simulation is None:
            return
        for name, help_text, value in (
            ("infer_simulation_speed", "Simulated seconds per second, as asked.", simulation.speed),
            ("infer_simulation_achieved_speed", "And as it was lately.", simulation.achieved_speed),
        ):
            family = GaugeMetricFamily(name, help_text, labels=("model_name",))
            _add(family, [self._model], value)
            yield family


def _tasks() -> int | None:
    """None where the page is made outside of the server's event loop. Too slow to count for every status."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return None


def _version() -> str:
    try:
        return metadata.version("infer-console")
    except metadata.PackageNotFoundError:
        return "unknown"


def _add(family: Any, labels: Sequence[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)


def _kv_usage(replica: Replica) -> float | None:
    kv = replica.kv
    return kv.used / kv.total if kv.used is not None and kv.total else None
