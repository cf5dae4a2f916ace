"""All rules, causes before what they cause, and which findings each accounts for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from infer_console.diagnosis.case import Case
from infer_console.diagnosis.rules.batch import batch_growth
from infer_console.diagnosis.rules.context import context_shift, kv_exhaustion
from infer_console.diagnosis.rules.gateway import gateway_lag, tokenizer_lag
from infer_console.diagnosis.rules.gpu import gpu_fault
from infer_console.diagnosis.rules.headroom import headroom_changed, headroom_high
from infer_console.diagnosis.rules.imbalance import router_imbalance
from infer_console.diagnosis.rules.latency import latency_moved
from infer_console.diagnosis.rules.prefill import prefill_interference
from infer_console.diagnosis.rules.prefix import prefix_collapse
from infer_console.diagnosis.rules.pressure import headroom_low, kv_pressure
from infer_console.diagnosis.rules.queueing import queueing_on_kv
from infer_console.diagnosis.rules.stalled import replica_stalled
from infer_console.diagnosis.rules.tenants import batch_crowding, tenant_crowding
from infer_console.diagnosis.rules.unreachable import replica_unreachable
from infer_console.state.finding import Finding


@dataclass(frozen=True, slots=True)
class Rule:
    """``look`` is pure. What it finds accounts for findings of the rules in ``explains``: on the same
    replica, where one of the two is of the fleet, or, with ``spreads`` (its requests go elsewhere), on
    any."""

    name: str
    look: Callable[[Case], Iterator[Finding]]
    explains: frozenset[str] = frozenset()
    spreads: bool = False


_MEMORY = frozenset({"queueing_on_kv", "kv_pressure", "kv_exhaustion"})
_STEPS = frozenset({"prefill_interference", "batch_growth"})
_LATENCY = frozenset({"latency_moved"})

RULES: tuple[Rule, ...] = (
    Rule(
        "gpu_fault",
        gpu_fault,
        _MEMORY | _STEPS | _LATENCY | {"replica_stalled", "router_imbalance"},
        spreads=True,
    ),
    Rule(
        "replica_stalled", replica_stalled, _MEMORY | _STEPS | _LATENCY | {"router_imbalance"}, spreads=True
    ),
    Rule(
        "replica_unreachable",
        replica_unreachable,
        _MEMORY | _STEPS | _LATENCY | {"router_imbalance"},
        spreads=True,
    ),
    Rule(
        "headroom_changed",
        headroom_changed,
        _MEMORY | _LATENCY | {"headroom_low", "headroom_high", "router_imbalance"},
    ),
    Rule("batch_crowding", batch_crowding, _MEMORY | _LATENCY | {"tenant_crowding", "headroom_high"}),
    Rule(
        "tenant_crowding",
        tenant_crowding,
        _MEMORY | _LATENCY | {"context_shift", "prefill_interference"},
    ),
    Rule("router_imbalance", router_imbalance, _MEMORY | _LATENCY | {"batch_growth"}),
    Rule("headroom_low", headroom_low, _MEMORY | _LATENCY),
    Rule("headroom_high", headroom_high, _MEMORY | _LATENCY),
    Rule("context_shift", context_shift, _MEMORY | _LATENCY | {"prefill_interference"}),
    Rule("prefix_collapse", prefix_collapse, _LATENCY | {"prefill_interference", "kv_exhaustion"}),
    Rule("kv_pressure", kv_pressure, _LATENCY | {"queueing_on_kv", "kv_exhaustion"}),
    Rule("queueing_on_kv", queueing_on_kv, _LATENCY | {"kv_exhaustion"}),
    Rule("prefill_interference", prefill_interference, _LATENCY),
    Rule("batch_growth", batch_growth, _LATENCY),
    Rule("kv_exhaustion", kv_exhaustion, _LATENCY),
    # Behind those that queues are due to: what they add is seldom what latency is made of.
    Rule("gateway_lag", gateway_lag, _LATENCY),
    Rule("tokenizer_lag", tokenizer_lag, _LATENCY),
    Rule("latency_moved", latency_moved),
)

RULE: dict[str, Rule] = {rule.name: rule for rule in RULES}
ORDER: dict[str, int] = {rule.name: place for place, rule in enumerate(RULES)}
