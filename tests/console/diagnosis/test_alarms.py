"""Every rule fires on its evidence, and is silent without it."""

import dataclasses

import pytest
from infer_console.diagnosis.alarms import RULES, find_alarms
from infer_console.diagnosis.memory import FORGET_AFTER_S, AlarmMemory
from infer_console.state.picture import Link, Picture, ReplicaPicture
from infer_engine.protocol import Alarm, Kv, Percentiles, QueueWait, Replica, RequestRow

QUIET = {
    "state": "ready",
    "health": "ok",
    "running": 2,
    "waiting": 0,
    "kv": Kv(block_size=16, total=100, used=50, cached=0, free=50, admit_limit=90, batch_limit=65),
    "queue_wait_s": QueueWait(p50=0.0, p99=0.1, oldest=None),
    "ttft_s": Percentiles(p50=0.2, p95=0.4, p99=0.5),
    "preemptions_per_min": 0.0,
    "invariant_violations": 0,
}
QUEUEING = {"waiting": 9, "queue_wait_s": QueueWait(p50=4.0, p99=29.7, oldest=47.0)}


def picture(*replicas: Replica, **fields: object) -> Picture:
    shown = {each.id: ReplicaPicture(status=each) for each in replicas}
    link = Link(url="unix:///x", state="live", age_s=0.1)
    return Picture(**{"at": 0.0, "link": link, "replicas": shown, **fields})  # type: ignore[arg-type]


def replica(name: str = "r0", **fields: object) -> Replica:
    return Replica(**{"id": name, **QUIET, **fields})  # type: ignore[arg-type]


def alarms(**fields: object) -> dict[str, Alarm]:
    """Alarms about r0, with a quiet r1 beside it."""
    found = find_alarms(picture(replica(**fields), replica("r1")))
    assert all(alarm.replica == "r0" for alarm in found)
    return {alarm.rule: alarm for alarm in found}


def test_a_quiet_fleet_has_no_alarm() -> None:
    assert find_alarms(picture(replica(), replica("r1"))) == ()
    assert find_alarms(picture()) == ()


def test_a_fleet_of_which_nothing_is_known_has_none_either() -> None:
    assert find_alarms(picture(Replica(id="r0", state="ready"), Replica(id="r1", state="ready"))) == ()


@pytest.mark.parametrize(
    ("fields", "rule", "severity", "says"),
    [
        (
            {"state": "failed", "error": "out of memory"},
            "replica_failed",
            "critical",
            ["failed", "out of memory"],
        ),
        ({"health": "bad"}, "replica_failed", "critical", ["health is bad"]),
        (
            {"health": "stalled", "step_age_s": 12.5, "running": 4},
            "replica_stalled",
            "critical",
            ["no step for 12.5s", "4 running"],
        ),
        ({"state": "restarting", "incarnation": 3}, "replica_restarting", "warning", ["incarnation 3"]),
        ({"invariant_violations": 2}, "invariant_violations", "critical", ["2 times"]),
        (
            {**QUEUEING, "waiting_reasons": {"kv": 6, "behind": 3}},
            "queueing_on_kv",
            "critical",
            ["9 wait (kv 6, behind 3)", "oldest 47.0s", "50 of 100 blocks", "admits up to 90"],
        ),
        ({**QUEUEING, "waiting_reasons": {"headroom": 9}}, "queueing_on_kv", "critical", ["headroom 9"]),
        ({"kv": Kv(total=100, used=96)}, "kv_nearly_full", "warning", ["KV 96%", "96 of 100"]),
        ({"preemptions_per_min": 4.0}, "preempting", "warning", ["4/min"]),
        (
            {"ttft_s": Percentiles(p99=48.0), "queue_wait_s": QueueWait(p99=29.7)},
            "slow_ttft",
            "warning",
            ["TTFT p99 48.0s", "queue wait p99 29.7s"],
        ),
        ({"state": "draining", "running": 6}, "draining", "warning", ["6 running", "50 blocks held"]),
        ({"state": "drained"}, "drained", "warning", ["takes no requests"]),
    ],
)
def test_a_rule_fires_with_its_numbers(
    fields: dict[str, object], rule: str, severity: str, says: list[str]
) -> None:
    found = alarms(**fields)
    assert list(found) == [rule]
    assert found[rule].severity == severity
    assert found[rule].action
    for words in says:
        assert words in found[rule].text


@pytest.mark.parametrize(
    "fields",
    [
        {"health": "idle", "step_age_s": 500.0},
        {
            "waiting": 9,
            "queue_wait_s": QueueWait(oldest=5.0),
            "waiting_reasons": {"kv": 9},
        },  # not long enough
        {**QUEUEING, "waiting_reasons": {"slots": 9}},  # another reason
        {**QUEUEING, "waiting_reasons": {"slots": 8, "kv": 1}},  # another reason dominates
        {**QUEUEING, "waiting": 0, "waiting_reasons": {"kv": 9}},  # nobody waits any more
        {"kv": Kv(total=100, used=95)},
        {"kv": Kv(total=0, used=0)},
        {"preemptions_per_min": 0.5},
        {"ttft_s": Percentiles(p99=48.0), "queue_wait_s": QueueWait(p99=0.2)},  # slow, but not for queueing
        {"ttft_s": Percentiles(p99=1.9), "queue_wait_s": QueueWait(p99=1.8)},
        {"ttft_s": Percentiles(p99=48.0), "queue_wait_s": QueueWait()},  # no evidence
        {"invariant_violations": None},
    ],
)
def test_a_rule_is_silent_without_its_evidence(fields: dict[str, object]) -> None:
    assert alarms(**fields) == {}


def test_the_head_of_the_queue_is_named_where_the_roster_is_known() -> None:
    def row(request: str, **fields: object) -> RequestRow:
        base = {"tenant": "t", "tier": "batch", "replica": "r0", "prompt_tokens": 1, "age_s": 0.0}
        return RequestRow(**{"id": request, **base, **fields})  # type: ignore[arg-type]

    status = replica(**QUEUEING, waiting_reasons={"kv": 9})
    rows = [row("q1", state="running"), row("q2", state="waiting", needs_blocks=62, admissible_blocks=7)]
    shown = ReplicaPicture(status=status, rows={each.id: each for each in rows}, order=("q1", "q2"))
    (found,) = find_alarms(dataclasses.replace(picture(), replicas={"r0": shown}))
    assert "q2 needs 62, 7 admissible" in found.text


@pytest.mark.parametrize(
    ("states", "severity", "says"),
    [
        (("drained", "failed"), "critical", "1 drained, 1 failed"),
        (("starting", "starting"), "warning", "2 starting"),
        (("restarting", "drained"), "warning", "1 restarting, 1 drained"),
    ],
)
def test_no_ready_replica(states: tuple[str, ...], severity: str, says: str) -> None:
    replicas = [replica(f"r{number}", state=state) for number, state in enumerate(states)]
    found = {alarm.rule: alarm for alarm in find_alarms(picture(*replicas))}
    assert found["no_ready_replica"].severity == severity
    assert found["no_ready_replica"].replica is None
    assert says in found["no_ready_replica"].text


def test_critical_alarms_come_first() -> None:
    found = find_alarms(picture(replica(state="drained"), replica("r1", invariant_violations=1)))
    assert [alarm.severity for alarm in found] == ["critical", "warning"]


def test_every_rule_is_in_the_list_once() -> None:
    assert len(set(RULES)) == len(RULES)


def test_since_is_when_it_first_fired_and_a_short_silence_does_not_reset_it() -> None:
    memory = AlarmMemory()
    drained, quiet = picture(replica(state="drained"), replica("r1")), picture(replica(), replica("r1"))
    assert [alarm.since_s for alarm in memory.alarms(drained, 100.0)] == [0.0]
    assert [alarm.since_s for alarm in memory.alarms(drained, 103.0)] == [3.0]
    assert memory.alarms(quiet, 104.0) == ()
    assert [alarm.since_s for alarm in memory.alarms(drained, 106.0)] == [6.0]
    memory.alarms(quiet, 106.0 + FORGET_AFTER_S)
    assert [alarm.since_s for alarm in memory.alarms(drained, 120.0)] == [0.0]
