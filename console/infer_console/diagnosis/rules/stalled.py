"""A replica has work and takes no steps."""

from collections.abc import Iterator

from infer_console.diagnosis.case import Case
from infer_console.state.finding import Finding, Proposal
from infer_console.view.format import age, count


def replica_stalled(case: Case) -> Iterator[Finding]:
    for name, replica, _ in case.serving():
        if replica.health != "stalled":
            continue
        ready = [other for other, each, _ in case.ready() if other != name and each.health != "stalled"]
        held = (replica.running or 0) + (replica.waiting or 0)
        yield Finding(
            rule="replica_stalled",
            replica=name,
            since_s=replica.step_age_s,
            evidence={
                "step_age_s": replica.step_age_s,
                "running": replica.running,
                "waiting": replica.waiting,
                "other_ready": len(ready),
                "stalls_before": replica.stalls,
            },
            confidence=1.0,
            words=f"stalled: no step for {age(replica.step_age_s)}, {count(replica.running)} run and"
            f" {count(replica.waiting)} wait there",
            action=Proposal(
                name="fence",
                target=name,
                words=f"fence {name}",
                effect=f"its {held} requests go on elsewhere without its help, {len(ready)} can take them",
            )
            if ready
            else None,
        )
