"""Alarms over load: who waits for blocks, pools that are full, running requests that lose their place, first
tokens that come late."""

from collections.abc import Iterator
from itertools import islice

from infer_engine.protocol import Alarm, Replica

from infer_console.diagnosis.case import interactive_waiting
from infer_console.diagnosis.state_alarms import statuses
from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.state.series import kv_used_ratio

#: Waiting longer than this for KV memory is an incident, not a queue.
LONG_WAIT_S = 5.0
#: Share of the pool in use from which running sequences have no room left to grow.
KV_FULL_RATIO = 0.95
PREEMPTIONS_PER_MIN = 1.0
#: So often the batch tier computes more anew than it gets done: it is let in too far.
BATCH_CHURN_PER_MIN = 10.0
SLOW_TTFT_S = 2.0
#: A TTFT is queueing's fault when its p99 is at least this share queue wait.
QUEUE_SHARE = 0.5
#: An admission this lately after a wait of at least so long is queueing that goes on.
LATELY_S, LATE_WAIT_S = 10.0, 0.5
#: Events looked at for that, newest first.
MAX_EVENTS = 200


def queueing_on_kv(picture: Picture) -> Iterator[Alarm]:
    """The classic: TTFT is high and the GPU looks idle, because requests wait for blocks."""
    for name, shown in picture.replicas.items():
        replica = shown.status
        oldest_s = replica.queue_wait_s.oldest
        if oldest_s is None or oldest_s <= LONG_WAIT_S or not replica.waiting:
            continue
        reasons = replica.waiting_reasons
        on_kv = reasons.get("kv", 0) + reasons.get("headroom", 0)
        others = max((count for reason, count in reasons.items() if reason not in _KV_REASONS), default=0)
        if on_kv == 0 or on_kv < others:
            continue
        if interactive_waiting(replica) == 0:  # batch waits for what interactive leaves
            yield Alarm(
                rule="queueing_on_kv",
                severity="notice",
                replica=name,
                text=f"only batch waits for KV: {_waiting(replica)}{_pool(replica)}",
            )
            continue
        yield Alarm(
            rule="queueing_on_kv",
            severity="critical",
            replica=name,
            text=f"queueing on KV: {_waiting(replica)}, oldest {oldest_s:.1f}s{_pool(replica)}{_head(shown)}",
            action=_elsewhere(picture, name) or _room(replica),
        )


#: Reasons that come of a lack of blocks; those behind such a request wait for the same.
_KV_REASONS = frozenset({"kv", "headroom", "behind"})


def kv_nearly_full(picture: Picture) -> Iterator[Alarm]:
    for name, replica in statuses(picture):
        ratio = kv_used_ratio(replica.kv)
        if ratio is None or ratio <= KV_FULL_RATIO:
            continue
        used, total = replica.kv.used or 0, replica.kv.total or 0
        batch = replica.batch.kv_blocks if replica.batch is not None else 0
        if batch and used - batch <= KV_FULL_RATIO * total:
            whose = f"{batch} of them batch's, which gives way first"
            yield Alarm(
                rule="kv_nearly_full",
                severity="notice",
                replica=name,
                text=f"KV {ratio:.0%}: {used} of {total} blocks used, {whose}",
            )
        else:
            yield Alarm(
                rule="kv_nearly_full",
                severity="warning",
                replica=name,
                text=f"KV {ratio:.0%}: {replica.kv.used:,} of {replica.kv.total:,} blocks used;"
                " next is preemption",
                action="raise headroom (H), or drain (D)",
            )


def preempting(picture: Picture) -> Iterator[Alarm]:
    for name, replica in statuses(picture):
        rate, batch = replica.preemptions_per_min, replica.batch_preemptions_per_min
        if rate is None or rate < PREEMPTIONS_PER_MIN:
            continue
        if not _outgrown(replica):
            yield _batch_gives_way(picture, name, replica, rate)
            continue
        whom = f"{rate - batch:.0f}/min interactive, {batch:.0f}/min batch" if batch else f"{rate:.0f}/min"
        yield Alarm(
            rule="preempting",
            severity="warning",
            replica=name,
            text=f"preempting {whom}: running requests lose their place{_pool(replica)}",
            action="raise headroom (H)",
        )


def _batch_gives_way(picture: Picture, name: str, replica: Replica, rate: float) -> Alarm:
    """That is what the batch tier is for: more headroom would not change it, a lower mark of its own would
    have less of it computed anew."""
    spec = picture.fleet.spec if picture.fleet is not None else None
    shed = spec is not None and spec.shed
    why = "it is shed" if shed else "no interactive request lost its place"
    return Alarm(
        rule="preempting",
        severity="notice",
        replica=name,
        text=f"batch gives way {rate:.0f}/min: {why}{_pool(replica)}",
        action="raise batch headroom (H)" if rate >= BATCH_CHURN_PER_MIN and not shed else None,
    )


def _outgrown(replica: Replica) -> bool:
    """Whether requests lose their place that are not there to give it up. Where tiers are not told, all
    count."""
    rate, batch = replica.preemptions_per_min or 0.0, replica.batch_preemptions_per_min or 0.0
    return rate - batch >= PREEMPTIONS_PER_MIN


def slow_ttft(picture: Picture) -> Iterator[Alarm]:
    """TTFT regressions point at queueing first; say so only where the queue wait is the evidence, and where
    somebody queues now: the percentiles remember a minute. Batch is there to wait."""
    for name, replica in statuses(picture):
        ttft_s, wait_s = replica.ttft_s.p99, replica.queue_wait_s.p99
        if ttft_s is None or wait_s is None or ttft_s <= SLOW_TTFT_S or wait_s < QUEUE_SHARE * ttft_s:
            continue
        if not interactive_waiting(replica) and not _waited_lately(picture, name):
            continue
        measured = f"TTFT p99 {ttft_s:.1f}s, queue wait p99 {wait_s:.1f}s over the last minute"
        cause, action = _prefill_bound(replica), "shorter prompts, or add capacity"
        if cause is None:
            cause, action = "queueing, not compute", "see its queue and KV (enter)"
        yield Alarm(
            rule="slow_ttft", severity="warning", replica=name, text=f"{measured}: {cause}", action=action
        )


def _waited_lately(picture: Picture, replica: str) -> bool:
    """Whether somebody was admitted within the last seconds who had waited, batch aside."""
    return any(
        event.kind == "admit"
        and event.replica == replica
        and event.tier != "batch"
        and (event.wait_s or 0.0) >= LATE_WAIT_S
        and picture.at - event.at <= LATELY_S
        for event in islice(reversed(picture.events), MAX_EVENTS)
    )


def _prefill_bound(replica: Replica) -> str | None:
    """The step and its budget, where that is what most wait for."""
    reasons = {name: count for name, count in replica.waiting_reasons.items() if name != "behind"}
    if not reasons or max(reasons, key=lambda name: reasons[name]) != "token_budget":
        return None
    waits = f"prefill-bound: {reasons['token_budget']} wait for the step's token budget"
    step = replica.step
    if step is None:
        return waits
    took = f" in {step.duration_s * 1000:.0f} ms" if step.duration_s is not None else ""
    tokens = step.decode_tokens + step.prefill_tokens
    return f"{waits} (last step {tokens} of {step.token_budget} tokens{took})"


def _waiting(replica: Replica) -> str:
    """ "9 wait (kv 6, behind 3)"."""
    reasons = sorted(replica.waiting_reasons.items(), key=lambda item: -item[1])
    return f"{replica.waiting} wait ({', '.join(f'{reason} {count}' for reason, count in reasons if count)})"


def _pool(replica: Replica) -> str:
    ratio = kv_used_ratio(replica.kv)
    if ratio is None:
        return ""
    limit = f", admits up to {replica.kv.admit_limit:,}" if replica.kv.admit_limit is not None else ""
    return f"; KV {ratio:.0%}, {replica.kv.used:,} of {replica.kv.total:,} blocks{limit}"


def _head(shown: ReplicaPicture) -> str:
    """The first waiting request's need, where the roster is known."""
    for request in shown.order:
        row = shown.rows[request]
        if row.state == "waiting" and row.needs_blocks is not None and row.admissible_blocks is not None:
            return f"; {row.id} needs {row.needs_blocks:,}, {row.admissible_blocks:,} admissible"
    return ""


def _elsewhere(picture: Picture, crowded: str) -> str | None:
    """Waiting requests stay where they were placed, unless their replica drains."""
    for name, shown in picture.replicas.items():
        other = shown.status
        if name != crowded and other.state == "ready" and other.running == 0 and other.waiting == 0:
            return f"{name} is idle: drain (D), then undrain"
    return None


def _room(replica: Replica) -> str:
    """What makes room. Where running requests already outgrow the pool, admitting more is no way out."""
    headroom, kv = replica.waiting_reasons.get("headroom", 0), replica.waiting_reasons.get("kv", 0)
    if headroom > kv and not _outgrown(replica):
        return "lower headroom (H), or add capacity"
    return "cancel (X) the largest, or add capacity"
