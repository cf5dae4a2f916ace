"""What is wrong right now: pure rules over a picture, each naming its evidence and what to do about it.
The replica is in its own field, not in the text.

A rule that lacks a number stays silent: unknown is neither good nor bad. ``since_s`` is the memory's to add.
An action is one short clause: it is shown whole, whatever becomes of the text.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import msgspec
from infer_engine.protocol import Alarm, Replica

from infer_console.diagnosis.case import interactive_waiting
from infer_console.diagnosis.unready import (
    is_missed,
    is_upstream,
    missed_action,
    missed_words,
    none_ready_words,
    of_upstreams,
)
from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.state.series import kv_used_ratio
from infer_console.view.alarms import gravity
from infer_console.view.format import age

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

LINK_LOST = "link_lost"

Rule = Callable[[Picture], Iterator[Alarm]]


def find_alarms(picture: Picture) -> tuple[Alarm, ...]:
    """All alarms of a picture, the gravest first, else in the rules' order."""
    found = [alarm for rule in RULES for alarm in rule(picture)]
    found.sort(key=gravity)
    if picture.link.state != "lost":
        return tuple(found)
    # What was true of a server that cannot be reached may be so no longer, and nothing can be done there.
    then = [msgspec.structs.replace(alarm, text=f"as of then: {alarm.text}", action=None) for alarm in found]
    return link_lost(picture), *then


def link_lost(picture: Picture) -> Alarm:
    age_s = picture.link.age_s
    lasts = f" for {age(age_s)}" if age_s is not None else ""
    why = f" ({picture.link.message})" if picture.link.message else ""
    return Alarm(
        rule=LINK_LOST,
        severity="critical",
        text=f"server not reachable{lasts}; the view is old{why}",
        action="the console goes on trying",
    )


def no_ready_replica(picture: Picture) -> Iterator[Alarm]:
    if not picture.replicas or any(each.status.state == "ready" for each in picture.replicas.values()):
        return
    states = [each.status.state for each in picture.replicas.values()]
    nobody = "no replica is ready"
    loading = "starting" in states or "restarting" in states
    if is_stopping(picture):
        action = None
    elif of_upstreams(picture) and (loading or "failed" in states):
        nobody, action = none_ready_words(picture)
    elif loading:
        action = "wait for it to load"
    elif "drained" in states or "draining" in states:
        action = "undrain a replica (U)"
    else:
        action = "see the engine's log"
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    held = f"; {len(picture.held)} requests held at the gateway" if picture.held else ""
    stopping = "the server is stopping; " if is_stopping(picture) else ""
    missed = any(is_upstream(each.status) and is_missed(each.status) for each in picture.replicas.values())
    yield Alarm(
        rule="no_ready_replica",
        severity="warning" if loading and not missed else "critical",
        text=f"{stopping}{nobody} ({counted}): new requests wait or are refused{held}",
        action=action,
    )


def replica_failed(picture: Picture) -> Iterator[Alarm]:
    for name, replica in _each(picture):
        if replica.state == "failed" or (replica.health == "bad" and replica.state != "fenced"):
            error = replica.error or ("no reason given" if replica.state == "failed" else "health is bad")
            yield Alarm(
                rule="replica_failed",
                severity="critical",
                replica=name,
                text=f"{replica.state}: {error}",
                action="look at that server" if is_upstream(replica) else "see the engine's log",
            )


def replica_unreachable(picture: Picture) -> Iterator[Alarm]:
    if is_stopping(picture):
        return
    for name, replica in _each(picture):
        if is_missed(replica):
            yield Alarm(
                rule="replica_unreachable",
                severity="critical" if is_upstream(replica) and replica.was_ready else "warning",
                replica=name,
                text=missed_words(replica),
                action=missed_action(replica),
            )


def replica_fenced(picture: Picture) -> Iterator[Alarm]:
    for name, replica in _each(picture):
        if replica.state == "fenced":
            why = replica.spec.fenced if replica.spec is not None else replica.error
            yield Alarm(
                rule="replica_fenced",
                severity="warning",
                replica=name,
                text=f"fenced: {why or 'no reason given'}; no process is started for it",
                action="release it (F)",
            )


def specs_not_kept(picture: Picture) -> Iterator[Alarm]:
    trouble = picture.fleet.specs_trouble if picture.fleet is not None else None
    if trouble is not None:
        yield Alarm(
            rule="specs_not_kept",
            severity="warning",
            text=trouble,
            action="see what is drained, fenced and limited before the server restarts",
        )


def shortfall(picture: Picture) -> Iterator[Alarm]:
    """Fewer replicas than are wanted, and none on its way."""
    spec = picture.fleet.spec if picture.fleet is not None else None
    if spec is None or of_upstreams(picture):  # each of those tells for itself why it is not there
        return
    there = [
        replica for _, replica in _each(picture) if replica.state not in ("fenced", "failed", "stopping")
    ]
    if len(there) < spec.replicas and not is_stopping(picture):
        yield Alarm(
            rule="too_few_replicas",
            severity="warning",
            text=f"{len(there)} replicas are there, {spec.replicas} are wanted",
            action=f"infer-console scale {spec.replicas}, or release what is fenced",
        )


def replica_restarting(picture: Picture) -> Iterator[Alarm]:
    for name, replica in _each(picture):
        if replica.state == "restarting":
            why = f": {replica.error}" if replica.error else ""
            yield Alarm(
                rule="replica_restarting",
                severity="warning",
                replica=name,
                text=f"restarting, incarnation {replica.incarnation}{why}; its requests that had sent nothing"
                " move, the others ended with replica_lost",
                action="wait for ready",
            )


def replica_stalled(picture: Picture) -> Iterator[Alarm]:
    for name, replica in _each(picture):
        if replica.health == "stalled":
            age = (
                f"no step for {replica.step_age_s:.1f}s"
                if replica.step_age_s is not None
                else "it takes no steps"
            )
            running = f" with {replica.running} running" if replica.running else ""
            yield Alarm(
                rule="replica_stalled",
                severity="critical",
                replica=name,
                text=f"stalled: {age}{running}",
                action="drain it (D)",
            )


def invariant_violations(picture: Picture) -> Iterator[Alarm]:
    for name, replica in _each(picture):
        if replica.invariant_violations:
            yield Alarm(
                rule="invariant_violations",
                severity="critical",
                replica=name,
                text=f"its block accounting was wrong {replica.invariant_violations} times",
                action="drain it (D) and restart it",
            )


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
    for name, replica in _each(picture):
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
                text=f"KV {ratio:.0%}: {replica.kv.used} of {replica.kv.total} blocks used;"
                " next is preemption",
                action="raise headroom (H), or drain (D)",
            )


def preempting(picture: Picture) -> Iterator[Alarm]:
    for name, replica in _each(picture):
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
    for name, replica in _each(picture):
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


def draining(picture: Picture) -> Iterator[Alarm]:
    for name, replica in _each(picture):
        if replica.state == "draining":
            left = f"{replica.running} running" if replica.running is not None else "some requests"
            held = f", {replica.kv.used} blocks still held" if replica.kv.used is not None else ""
            yield Alarm(
                rule="draining",
                severity="warning",
                replica=name,
                text=f"draining{_draining_for(picture, name)}: {left}{held}",
                action=None if is_stopping(picture) else "undrain (U) takes it back",
            )
        elif replica.state == "drained":
            yield Alarm(
                rule="drained",
                severity="warning",
                replica=name,
                text="drained: it takes no requests",
                action=None if is_stopping(picture) else "undrain (U) brings it back",
            )


def is_stopping(picture: Picture) -> bool:
    """Whether the server is on its way down: it stops all its replicas. Else only a scale stops some."""
    scales = any(each.kind == "scale" and each.ended_at is None for each in picture.operations)
    return not scales and any(each.status.state == "stopping" for each in picture.replicas.values())


def _draining_for(picture: Picture, replica: str) -> str:
    for operation in reversed(picture.operations):
        if (operation.kind, operation.target) == ("drain", replica) and operation.ended_at is None:
            return f" for {age(picture.at - operation.started_at)}"
    return ""


#: In the order in which they are shown.
RULES: tuple[Rule, ...] = (
    no_ready_replica,
    replica_failed,
    replica_unreachable,
    replica_fenced,
    replica_stalled,
    invariant_violations,
    queueing_on_kv,
    replica_restarting,
    preempting,
    kv_nearly_full,
    slow_ttft,
    draining,
    shortfall,
    specs_not_kept,
)


def _each(picture: Picture) -> Iterator[tuple[str, Replica]]:
    for name, shown in picture.replicas.items():
        yield name, shown.status


def _waiting(replica: Replica) -> str:
    """ "9 wait (kv 6, behind 3)"."""
    reasons = sorted(replica.waiting_reasons.items(), key=lambda item: -item[1])
    return f"{replica.waiting} wait ({', '.join(f'{reason} {count}' for reason, count in reasons if count)})"


def _pool(replica: Replica) -> str:
    ratio = kv_used_ratio(replica.kv)
    if ratio is None:
        return ""
    limit = f", admits up to {replica.kv.admit_limit}" if replica.kv.admit_limit is not None else ""
    return f"; KV {ratio:.0%}, {replica.kv.used} of {replica.kv.total} blocks{limit}"


def _head(shown: ReplicaPicture) -> str:
    """The first waiting request's need, where the roster is known."""
    for request in shown.order:
        row = shown.rows[request]
        if row.state == "waiting" and row.needs_blocks is not None and row.admissible_blocks is not None:
            return f"; {row.id} needs {row.needs_blocks}, {row.admissible_blocks} admissible"
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
