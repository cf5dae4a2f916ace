"""The replicas on the metrics page: gauges of what each is now, out of the status that the console sees, and
counters of what each has done."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from infer_engine.fleet.measures import ReplicaMeasures
from infer_engine.protocol import FinishReason, PreemptMode, Replica, ReplicaState
from infer_engine.telemetry.families import REPLICA_LABELS, add_known

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


def replica_gauges(model: str, replicas: Sequence[Replica]) -> Iterator[Metric]:
    for name, help_text, value_of in _GAUGES:
        family = GaugeMetricFamily(name, help_text, labels=REPLICA_LABELS)
        for replica in replicas:
            add_known(family, [model, replica.id], value_of(replica))
        yield family
    yield from _pools(model, replicas)
    yield from _queues(model, replicas)
    states = GaugeMetricFamily(
        "infer_replica_state", "1 for the state it is in.", labels=(*REPLICA_LABELS, "state")
    )
    for replica in replicas:
        for state in _STATES:
            states.add_metric([model, replica.id, state], float(replica.state == state))
    yield states


def _pools(model: str, replicas: Sequence[Replica]) -> Iterator[Metric]:
    cache = GaugeMetricFamily(
        "vllm:cache_config_info", "The KV pool.", labels=(*REPLICA_LABELS, "block_size", "num_gpu_blocks")
    )
    blocks = GaugeMetricFamily(
        "infer_kv_blocks",
        "KV blocks: free, used and cached add up to the pool; reserved is the headroom of admission.",
        labels=(*REPLICA_LABELS, "state"),
    )
    for replica in replicas:
        kv = replica.kv
        if kv.block_size is not None and kv.total is not None:
            cache.add_metric([model, replica.id, str(kv.block_size), str(kv.total)], 1)
        reserved = None if kv.total is None or kv.admit_limit is None else kv.total - kv.admit_limit
        for state, count in (
            ("free", kv.free),
            ("used", kv.used),
            ("cached", kv.cached),
            ("reserved", reserved),
        ):
            add_known(blocks, [model, replica.id, state], count)
    yield from (cache, blocks)


def _queues(model: str, replicas: Sequence[Replica]) -> Iterator[Metric]:
    vllm_reasons = GaugeMetricFamily(
        "vllm:num_requests_waiting_by_reason",
        "Requests in the queue: capacity where memory or slots are short, deferred otherwise.",
        labels=(*REPLICA_LABELS, "reason"),
    )
    reasons = GaugeMetricFamily(
        "infer_requests_waiting_by_reason", "Requests in the queue.", labels=(*REPLICA_LABELS, "reason")
    )
    for replica in replicas:
        for reason, count in replica.waiting_reasons.items():
            reasons.add_metric([model, replica.id, reason], count)
        if replica.waiting is not None:
            capacity = sum(replica.waiting_reasons.get(reason, 0) for reason in _CAPACITY)
            vllm_reasons.add_metric([model, replica.id, "capacity"], capacity)
            vllm_reasons.add_metric([model, replica.id, "deferred"], max(0, replica.waiting - capacity))
    yield from (vllm_reasons, reasons)


def replica_counters(model: str, measures: Mapping[str, ReplicaMeasures]) -> Iterator[Metric]:
    for name, help_text, value_of in _COUNTERS:
        family = CounterMetricFamily(name, help_text, labels=REPLICA_LABELS)
        for replica, measured in measures.items():
            family.add_metric([model, replica], value_of(measured))
        yield family
    vllm_ends = CounterMetricFamily(
        "vllm:request_success", "Requests that ended.", labels=(*REPLICA_LABELS, "finished_reason")
    )
    ends = CounterMetricFamily(
        "infer_requests_finished", "Requests that ended.", labels=(*REPLICA_LABELS, "reason")
    )
    tokens = CounterMetricFamily(
        "infer_tokens",
        "Tokens: prompt of admitted requests, prefill computed (recomputation included), generated.",
        labels=(*REPLICA_LABELS, "kind"),
    )
    modes = CounterMetricFamily("infer_preemptions_by_mode", "Preemptions.", labels=(*REPLICA_LABELS, "mode"))
    for replica, measured in measures.items():
        labels = [model, replica]
        for mode in _PREEMPT_MODES:
            modes.add_metric([*labels, mode], measured.preemptions_by_mode[mode])
        for reason in _REASONS:
            vllm_ends.add_metric([*labels, _VLLM_REASON[reason]], measured.finished[reason])
            ends.add_metric([*labels, reason], measured.finished[reason])
        tokens.add_metric([*labels, "prompt"], measured.prompt_tokens)
        tokens.add_metric([*labels, "prefill"], measured.prefill_tokens)
        tokens.add_metric([*labels, "generated"], measured.generated_tokens)
    yield from (vllm_ends, ends, tokens, modes)


def _kv_usage(replica: Replica) -> float | None:
    kv = replica.kv
    return kv.used / kv.total if kv.used is not None and kv.total else None
