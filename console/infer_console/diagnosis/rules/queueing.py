"""Requests wait because the pool has no blocks for them: TTFT is high while the GPU looks idle."""

from collections.abc import Iterator

from infer_console.diagnosis.advice import one_more
from infer_console.diagnosis.case import Case, interactive_waiting, kv_share
from infer_console.state.finding import Finding
from infer_console.view.format import count, seconds

#: Somebody waits without a break for so long. A queue that forms and goes within a step is none.
HELD_S = 3.0
#: Share of those waiting that lack blocks, or wait behind one that does.
SHARE = 0.5


def queueing_on_kv(case: Case) -> Iterator[Finding]:
    for name, replica, track in case.serving():
        waiting = interactive_waiting(replica)
        if not waiting or not track.holds("interactive_waiting", 1, HELD_S):
            continue
        share = kv_share(replica.waiting_reasons)
        if share < SHARE:
            continue
        kv, oldest_s = replica.kv, replica.queue_wait_s.oldest
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
            },
            confidence=share,
            words=f"queueing on KV: {waiting} wait for blocks, oldest {seconds(oldest_s)}s;"
            f" {count(kv.used)} blocks used, {count(kv.admit_limit)} are admitted to",
            action=one_more(case, f"{count(kv.admit_limit)} blocks more to admit {waiting} that wait"),
        )
