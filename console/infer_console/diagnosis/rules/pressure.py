"""The pool is full and running requests outgrow it: some lose their place, and what they computed."""

from collections.abc import Iterator

from infer_engine.protocol import Kv, Replica

from infer_console.diagnosis.case import Case
from infer_console.diagnosis.track import Track
from infer_console.state.finding import Finding, Proposal
from infer_console.view.format import count, percent

#: Preemptions within that time that are no accident.
SECONDS = 20.0
PREEMPTIONS = 2
#: Share of the pool in use, for so long, from which nobody can grow.
FULL, FULL_S = 0.95, 5.0
#: Headroom below this share leaves those who run no room to grow.
LITTLE = 0.05
#: By how much the pool is to be kept freer.
MORE_HEADROOM = 0.10


def preempted(replica: Replica, track: Track) -> int:
    """Lately. Where batch runs it is the first to give way, as it should: then they count for nothing."""
    batch = replica.batch
    if batch is not None and batch.running + batch.waiting > 0:
        return 0
    per_min = replica.preemptions_per_min
    if per_min is not None and per_min < PREEMPTIONS:
        return 0
    change = track.change("preemptions", SECONDS)
    return 0 if change is None or change < 0 else round(change)


def headroom_ratio(kv: Kv) -> float | None:
    if kv.admit_limit is None or not kv.total:
        return None
    return 1 - kv.admit_limit / kv.total


def kv_pressure(case: Case) -> Iterator[Finding]:
    for name, replica, track in case.serving():
        times = preempted(replica, track)
        kv = replica.kv
        full_s = track.held_s("used", FULL * kv.total) if kv.total else 0.0
        if times < PREEMPTIONS and full_s < FULL_S:
            continue
        used = kv.used / kv.total if kv.used is not None and kv.total else None
        what = f"{times} preempted within {SECONDS:.0f}s" if times else "nobody who runs can grow"
        yield Finding(
            rule="kv_pressure",
            replica=name,
            evidence=_evidence(replica, times) | ({"full_s": full_s} if full_s else {}),
            confidence=1.0 if times >= PREEMPTIONS else 0.7,
            words=f"KV pressure: {percent(used)}% of the pool is used, {what}",
            action=more_headroom(name, kv),
        )


def headroom_low(case: Case) -> Iterator[Finding]:
    for name, replica, track in case.serving():
        times = preempted(replica, track)
        headroom = headroom_ratio(replica.kv)
        if times < PREEMPTIONS or headroom is None or headroom >= LITTLE:
            continue
        yield Finding(
            rule="headroom_low",
            replica=name,
            evidence=_evidence(replica, times) | {"headroom_ratio": headroom},
            confidence=1.0,
            words=f"headroom too low: {percent(headroom)}% is kept free of new requests, and {times} that ran"
            f" were preempted within {SECONDS:.0f}s",
            action=more_headroom(name, replica.kv),
        )


def _evidence(replica: Replica, times: int) -> dict[str, float | str | None]:
    kv = replica.kv
    return {
        "preempted": times,
        "within_s": SECONDS,
        "preemptions_per_min": replica.preemptions_per_min,
        "kv_used_blocks": kv.used,
        "kv_total_blocks": kv.total,
        "admit_limit_blocks": kv.admit_limit,
    }


def more_headroom(name: str, kv: Kv) -> Proposal | None:
    headroom = headroom_ratio(kv)
    if headroom is None or kv.total is None or headroom + MORE_HEADROOM > 0.5:
        return None
    wanted = round(100 * (headroom + MORE_HEADROOM))
    kept = kv.total * MORE_HEADROOM
    return Proposal(
        name="headroom",
        target=name,
        params={"headroom": f"{wanted}%", "tier": "interactive", "revert_after": "10m"},
        words=f"{name}: headroom {round(100 * headroom)}%→{wanted}%",
        effect=f"{count(kept)} blocks more for those who run to grow into, new requests wait longer",
    )
