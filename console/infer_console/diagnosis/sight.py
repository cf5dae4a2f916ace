"""Which rules a server tells enough for. One that is not ours tells little: where the others are silent, that
says nothing."""

from collections.abc import Callable, Mapping

from infer_engine.protocol import Replica

from infer_console.state.picture import Picture

Sight = Callable[[Picture], bool]


def _any(tells: Callable[[Replica], bool]) -> Sight:
    return lambda picture: any(tells(each.status) for each in picture.replicas.values())


def _loop(picture: Picture) -> bool:
    return picture.fleet is not None and picture.fleet.gateway.loop_lag_p99_s is not None


def _tokenizer(picture: Picture) -> bool:
    return picture.fleet is not None and picture.fleet.gateway.tokenizer_queue is not None


def _mark(replica: Replica) -> bool:
    return replica.kv.admit_limit is not None


def _steps(replica: Replica) -> bool:
    return replica.step is not None


def _taken(picture: Picture) -> bool:
    return picture.totals is not None and picture.totals.taken_requests is not None


_PREFIXES = _any(lambda replica: replica.prefix_queries_tokens is not None)

#: By rule: whether there is what it looks at.
SIGHT: Mapping[str, Sight] = {
    "gpu_fault": _any(lambda replica: replica.gpu is not None),
    "replica_stalled": _any(lambda replica: replica.health is not None),
    "replica_unreachable": _any(lambda replica: replica.was_ready is not None),
    "gateway_lag": _loop,
    "tokenizer_lag": _tokenizer,
    "headroom_changed": _any(_mark),
    "headroom_low": _any(_mark),
    "headroom_high": _any(_mark),
    "kv_exhaustion": _any(_mark),
    "queueing_on_kv": _any(_mark),
    "batch_crowding": _any(lambda replica: replica.batch is not None),
    "tenant_crowding": lambda picture: picture.totals is not None and bool(picture.totals.tenants),
    "router_imbalance": _any(lambda replica: replica.waiting is not None and replica.kv.used is not None),
    "kv_pressure": _any(lambda replica: replica.kv.used is not None or replica.preemptions is not None),
    "context_shift": lambda picture: (
        _taken(picture) and picture.totals is not None and picture.totals.taken_prompt_tokens is not None
    ),
    "prefix_collapse": lambda picture: _taken(picture) and _PREFIXES(picture),
    "prefill_interference": _any(_steps),
    "batch_growth": _any(_steps),
    "latency_moved": _any(lambda replica: replica.ttft_s.p99 is not None or replica.itl_s.p99 is not None),
}


def seeing(picture: Picture) -> int:
    """So many of the rules can see anything there."""
    return sum(sight(picture) for sight in SIGHT.values())


def nothing_found(picture: Picture) -> str:
    """Of servers that are only watched, by how many of the rules."""
    if "watched" not in picture.capabilities:
        return "nothing found"
    return f"nothing found by the {seeing(picture)} of {len(SIGHT)} rules for which this server tells enough"
