"""Alarms over states: who serves, who does not, and why; what is wanted and is not there."""

from collections.abc import Iterator
from itertools import islice

from infer_engine.protocol import Alarm, Replica

from infer_console.diagnosis.unready import (
    is_missed,
    is_upstream,
    missed_action,
    missed_words,
    none_ready_words,
    of_upstreams,
)
from infer_console.state.picture import Picture
from infer_console.view.format import age

#: Events looked at, newest first, for what a lost replica's requests came to.
MAX_LOSS_EVENTS = 2_000


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
    for name, replica in statuses(picture):
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
    for name, replica in statuses(picture):
        if is_missed(replica):
            yield Alarm(
                rule="replica_unreachable",
                severity="critical" if is_upstream(replica) and replica.was_ready else "warning",
                replica=name,
                text=missed_words(replica),
                action=missed_action(replica),
            )


def replica_fenced(picture: Picture) -> Iterator[Alarm]:
    for name, replica in statuses(picture):
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
        replica for _, replica in statuses(picture) if replica.state not in ("fenced", "failed", "stopping")
    ]
    if len(there) < spec.replicas and not is_stopping(picture):
        yield Alarm(
            rule="too_few_replicas",
            severity="warning",
            text=f"{len(there)} replicas are there, {spec.replicas} are wanted",
            action=f"infer-console scale {spec.replicas}, or release what is fenced",
        )


def replica_restarting(picture: Picture) -> Iterator[Alarm]:
    for name, replica in statuses(picture):
        if replica.state == "restarting":
            why = f": {replica.error}" if replica.error else ""
            yield Alarm(
                rule="replica_restarting",
                severity="warning",
                replica=name,
                text=f"restarting{why}{_became(picture, name)}; incarnation {replica.incarnation}",
                action="wait for ready",
            )


def _became(picture: Picture, replica: str) -> str:
    """What its requests came to since it was lost, as the feed tells it: they go on at other replicas, and
    one that ends is told. Where the feed does not go back that far, nothing is counted."""
    moved = ended = 0
    for event in islice(reversed(picture.events), MAX_LOSS_EVENTS):
        if event.replica != replica:
            continue
        if event.kind == "replica" and event.reason == "restarting":
            break
        moved += event.kind == "move" and event.reason == "replica_lost"
        ended += event.kind == "finish" and event.reason == "error"
    else:
        return ", its requests go on elsewhere"
    told = [f"{moved} {'request' if moved == 1 else 'requests'} moved"] if moved else []
    told += [f"{ended} ended with an error"] if ended else []
    return "".join(f", {each}" for each in told)


def replica_stalled(picture: Picture) -> Iterator[Alarm]:
    for name, replica in statuses(picture):
        if replica.health == "stalled":
            how_long = (
                f"no step for {replica.step_age_s:.1f}s"
                if replica.step_age_s is not None
                else "it takes no steps"
            )
            running = f" with {replica.running} running" if replica.running else ""
            yield Alarm(
                rule="replica_stalled",
                severity="critical",
                replica=name,
                text=f"stalled: {how_long}{running}",
                action="drain it (D)",
            )


def invariant_violations(picture: Picture) -> Iterator[Alarm]:
    for name, replica in statuses(picture):
        if replica.invariant_violations:
            yield Alarm(
                rule="invariant_violations",
                severity="critical",
                replica=name,
                text=f"its block accounting was wrong {replica.invariant_violations} times",
                action="drain it (D) and restart it",
            )


def draining(picture: Picture) -> Iterator[Alarm]:
    for name, replica in statuses(picture):
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


def statuses(picture: Picture) -> Iterator[tuple[str, Replica]]:
    for name, shown in picture.replicas.items():
        yield name, shown.status
