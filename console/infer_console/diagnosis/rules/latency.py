"""Latency left its usual level, and no other rule says why: what moved first is what there is to go by."""

from collections.abc import Iterator

from infer_console.diagnosis.case import Case
from infer_console.diagnosis.moved import FirstMoved, first_moved
from infer_console.diagnosis.unready import is_upstream
from infer_console.state.finding import Finding, Proposal
from infer_console.view.format import milliseconds, seconds

#: For so long: rules that know the cause come first.
HELD_S = 4.0
#: Slots are proposed where this share of the pool is free for those that get one.
ROOM = 0.4


def latency_moved(case: Case) -> Iterator[Finding]:
    moved = first_moved(case.picture)
    if moved is None or case.picture.at - moved.at < HELD_S:
        return
    ttft, itl, totals = moved.ttft, moved.itl, case.picture.totals
    reasons = totals.waiting_reasons if totals is not None else {}
    mostly = max(reasons, key=lambda name: reasons[name]) if reasons else None
    slowest = totals.ttft_split_s.slowest if totals is not None else None
    waits = f"; {reasons[mostly]} wait for {mostly}" if mostly else ""
    yield Finding(
        rule="latency_moved",
        since_s=case.picture.at - moved.at,
        evidence={
            "first": moved.first,
            "ttft_p99_s": ttft.now_s if ttft is not None else None,
            "ttft_p99_before_s": ttft.before_s if ttft is not None else None,
            "ttft_moved_ago_s": case.picture.at - ttft.at if ttft is not None else None,
            "itl_p99_s": itl.now_s if itl is not None else None,
            "itl_p99_before_s": itl.before_s if itl is not None else None,
            "itl_moved_ago_s": case.picture.at - itl.at if itl is not None else None,
            "slowest_queue_s": slowest.queue if slowest is not None else None,
            "slowest_prefill_s": slowest.prefill if slowest is not None else None,
            "waiting_reason": mostly,
        },
        confidence=0.5,
        words=f"{moved.first} moved first: {_levels(moved)}{waits}",
        action=_slots(case) if mostly == "slots" else None,
    )


def _levels(moved: FirstMoved) -> str:
    ttft, itl = moved.ttft, moved.itl
    told = [
        f"TTFT p99 {seconds(ttft.now_s)}s, was {seconds(ttft.before_s)}s" if ttft else "TTFT did not move",
        f"ITL p99 {milliseconds(itl.now_s)} ms, was {milliseconds(itl.before_s)} ms"
        if itl
        else "ITL did not",
    ]
    return "; ".join(reversed(told) if moved.first == "ITL" else told)


def _slots(case: Case) -> Proposal | None:
    """More in the batch, where the pool has room for them."""
    for name, replica, track in case.ready():
        slots, room = replica.max_running, track.last("free_ratio")
        if is_upstream(replica):
            continue  # its batch is its own setting: more from here would wait inside it
        if replica.waiting_reasons.get("slots") and slots and room is not None and room >= ROOM:
            more = slots * 3 // 2
            entering = min(replica.waiting or 0, more - slots)
            return Proposal(
                name="limits",
                target=name,
                params={"max_running": str(more)},
                words=f"{name}: batch of {slots}→{more}",
                effect=f"{entering} that wait enter at the next step; ITL grows",
            )
    return None
