"""Alarms in the doctor's words: each is told its cause, and what no alarm speaks of becomes one."""

from collections.abc import Iterable

import msgspec
from infer_engine.protocol import Alarm

from infer_console.diagnosis.rules.registry import RULE
from infer_console.state.finding import Finding
from infer_console.view.alarms import gravity

#: Alarms over measurements, and the findings that say no more than they do.
SAME: dict[str, frozenset[str]] = {
    "queueing_on_kv": frozenset({"queueing_on_kv"}),
    "kv_nearly_full": frozenset({"kv_pressure"}),
    "preempting": frozenset({"kv_pressure"}),
    "slow_ttft": frozenset({"latency_moved"}),
    "replica_stalled": frozenset({"replica_stalled"}),
    "replica_unreachable": frozenset({"replica_unreachable"}),
    "replica_failed": frozenset({"gpu_fault"}),
    "replica_fenced": frozenset({"gpu_fault"}),
}
#: Time that is lost before a request is in any queue: not why it waited there.
BEFORE_THE_QUEUE = frozenset({"gateway_lag", "tokenizer_lag"})
#: Findings of what gets worse by itself.
GRAVE = frozenset({"gpu_fault", "replica_stalled", "replica_unreachable"})


def with_causes(alarms: Iterable[Alarm], findings: Iterable[Finding]) -> tuple[Alarm, ...]:
    """The gravest first, those of findings after the others. An alarm of a lost connection is left alone:
    there nothing is known of causes; and so is a notice, which says itself why nothing is wrong."""
    alarms, findings = list(alarms), list(findings)
    if any(alarm.rule == "link_lost" for alarm in alarms):
        return tuple(alarms)
    told: set[str] = set()
    shown: list[Alarm] = []
    for alarm in alarms:
        same = SAME.get(alarm.rule) if alarm.severity != "notice" else None
        cause = None
        if same is not None:
            about = [finding for finding in findings if finding.concerns(alarm.replica)]
            told.update(finding.id for finding in about if finding.rule in same)
            cause = next(
                (
                    finding
                    for finding in about
                    if same & RULE[finding.rule].explains
                    and not (alarm.rule == "slow_ttft" and finding.rule in BEFORE_THE_QUEUE)
                ),
                None,
            )
        if cause is None:
            shown.append(alarm)
            continue
        told.add(cause.id)
        # What it measured first, then why; the rest stands on the replica's own screen.
        measured = alarm.text.partition(";")[0]
        # And what is proposed against that: what is usual against such an alarm may be the wrong thing here.
        action = cause.action.words if cause.action is not None else alarm.action
        text = f"{measured}; {cause.words}"
        shown.append(msgspec.structs.replace(alarm, text=text, cause=cause.rule, action=action))
    shown += [_alarm(finding) for finding in findings if finding.id not in told]
    return tuple(sorted(shown, key=gravity))


def _alarm(finding: Finding) -> Alarm:
    return Alarm(
        rule=finding.rule,
        severity="critical" if finding.rule in GRAVE else "warning",
        replica=finding.replica,
        since_s=finding.since_s,
        cause=finding.rule,
        text=finding.words,
        action=finding.action.words if finding.action is not None else "8: why",
    )
