"""Requests wait because the pool has no blocks for them: TTFT is high while the GPU looks idle."""

from collections.abc import Iterator

from infer_console.diagnosis.advice import one_more
from infer_console.diagnosis.case import Case, interactive_waiting, kv_share
from infer_console.state.finding import Finding
from infer_console.view.format import count, percent, seconds

#: Somebody waits without a break for so long. A queue that forms and goes within a step is none.
HELD_S = 3.0
#: Share of those waiting that lack blocks, or wait behind one that does.
SHARE = 0.5
#: A tenant with so much of what is used is named.
MOST = 0.6


def queueing_on_kv(case: Case) -> Iterator[Finding]:
    for name, replica, track in case.serving():
        waiting = interactive_waiting(replica)
        if not waiting or not track.holds("interactive_waiting", 1, HELD_S):
            continue
        share = kv_share(replica.waiting_reasons)
        if share < SHARE:
            continue
        kv, oldest_s = replica.kv, replica.queue_wait_s.oldest
        most = replica.tenants[0] if replica.tenants else None
        held = most.kv_blocks / kv.used if most is not None and kv.used else 0.0
        whose = f", {percent(held)}% of them {most.tenant}'s" if most is not None and held >= MOST else ""
        yield Finding(
            rule="queueing_on_kv",
            replica=name,
            since_s=track.held_s("interactive_waiting", 1),
            evidence={
                "waiting": waiting,
                "lack_blocks_share": share,
                "oldest_wait_s": oldest_s,
                "kv_used_blocks": kv.used,
                "admit_limit_blocks": kv.admit_limit,
                "kv_total_blocks": kv.total,
                "tenant": most.tenant if most is not None else None,
                "tenant_share": held,
            },
            confidence=share,
            words=f"queueing on KV: {waiting} wait for blocks, oldest {seconds(oldest_s)}s;"
            f" {count(kv.used)} blocks are used{whose}, requests are admitted up to {count(kv.admit_limit)}",
            action=one_more(case, f"{count(kv.admit_limit)} blocks more to admit {waiting} that wait"),
        )
