"""Every rule fires on its evidence, and is silent without it."""

import dataclasses

import pytest
from infer_console.diagnosis.alarms import RULES, find_alarms
from infer_console.diagnosis.memory import FORGET_AFTER_S, AlarmMemory
from infer_console.state.picture import Link, Picture, ReplicaPicture
from infer_console.view.alarms import alarm_rows, worst_alarms
from infer_console.view.row import plain
from infer_engine.protocol import (
    Alarm,
    Event,
    Fleet,
    FleetSpec,
    Kv,
    Operation,
    Percentiles,
    QueueWait,
    Replica,
    ReplicaSpec,
    RequestRow,
    StepMakeup,
    TierUse,
)
from msgspec.structs import replace

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
        (
            {"state": "restarting", "incarnation": 3},
            "replica_restarting",
            "warning",
            ["incarnation 3", "its requests go on elsewhere"],
        ),
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
            {"ttft_s": Percentiles(p99=48.0), "queue_wait_s": QueueWait(p99=29.7), "waiting": 1},
            "slow_ttft",
            "warning",
            ["TTFT p99 48.0s", "queue wait p99 29.7s over the last minute: queueing, not compute"],
        ),
        ({"state": "draining", "running": 6}, "draining", "warning", ["6 running", "50 blocks still held"]),
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
    ("all_per_min", "batch_per_min", "severity", "says", "action"),
    [
        (4.0, 4.0, "notice", "batch gives way 4/min: no interactive request lost its place", None),
        (30.0, 30.0, "notice", "batch gives way 30/min", "raise batch headroom (H)"),
        (4.0, 1.0, "warning", "preempting 3/min interactive, 1/min batch", "raise headroom (H)"),
        (4.0, 0.0, "warning", "preempting 4/min: running", "raise headroom (H)"),
        (4.0, None, "warning", "preempting 4/min: running", "raise headroom (H)"),
    ],
)
def test_batch_that_gives_way_is_no_trouble(
    all_per_min: float, batch_per_min: float | None, severity: str, says: str, action: str | None
) -> None:
    found = alarms(preemptions_per_min=all_per_min, batch_preemptions_per_min=batch_per_min)["preempting"]
    assert (found.severity, found.action) == (severity, action)
    assert says in found.text


def test_batch_that_waits_for_what_others_leave_is_no_trouble() -> None:
    waits = {
        **QUEUEING,
        "waiting_reasons": {"kv": 9},
        "ttft_s": Percentiles(p99=48.0),
        "kv": Kv(total=100, used=98),
    }
    only = TierUse(running=3, waiting=9, kv_blocks=40)
    found = alarms(**waits, batch=only)
    assert {rule: (alarm.severity, alarm.action) for rule, alarm in found.items()} == {
        "queueing_on_kv": ("notice", None),
        "kv_nearly_full": ("notice", None),
    }
    assert "only batch waits for KV: 9 wait (kv 9)" in found["queueing_on_kv"].text
    assert "98 of 100 blocks used, 40 of them batch's" in found["kv_nearly_full"].text
    some = TierUse(running=3, waiting=8, kv_blocks=2)
    found = alarms(**waits, batch=some)
    assert {rule: alarm.severity for rule, alarm in found.items()} == {
        "queueing_on_kv": "critical",
        "kv_nearly_full": "warning",
        "slow_ttft": "warning",
    }


def test_batch_that_was_shed_needs_no_other_mark() -> None:
    fleet = Fleet(name="f", model="m", spec=FleetSpec(replicas=1, shed=True))
    churning = replica(preemptions_per_min=30.0, batch_preemptions_per_min=30.0)
    (found,) = find_alarms(picture(churning, fleet=fleet))
    assert (found.severity, found.action) == ("notice", None)
    assert "batch gives way 30/min: it is shed" in found.text


def test_a_notice_stands_last_and_makes_no_replica_look_bad() -> None:
    yields = replica("r0", preemptions_per_min=4.0, batch_preemptions_per_min=4.0)
    shown = picture(yields, replica("r1", state="drained"), replica("r2", state="failed"))
    found = find_alarms(shown)
    assert [alarm.severity for alarm in found] == ["critical", "warning", "notice"]
    shown = dataclasses.replace(shown, alarms=found)
    assert set(worst_alarms(shown)) == {"r1", "r2"}
    assert [plain(row)[:4] for row in alarm_rows(shown, 120, 9)] == [" ▲ 1", " △ 2", " ○ 3"]


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
        {"ttft_s": Percentiles(p99=48.0), "queue_wait_s": QueueWait(p99=29.7)},  # nobody queues any more
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


def memory_of_a_quiet_fleet() -> AlarmMemory:
    memory = AlarmMemory()
    assert memory.alarms(picture(replica(), replica("r1")), 100.0) == ()
    return memory


FULL = {"kv": Kv(total=100, used=96)}


def test_a_measured_alarm_stays_for_ten_seconds_after_it_last_fired() -> None:
    memory = memory_of_a_quiet_fleet()
    full, quiet = picture(replica(**FULL), replica("r1")), picture(replica(), replica("r1"))
    assert [alarm.since_s for alarm in memory.alarms(full, 101.0)] == [0.0]
    assert [alarm.since_s for alarm in memory.alarms(full, 104.0)] == [3.0]
    assert [alarm.since_s for alarm in memory.alarms(quiet, 105.0)] == [4.0], "the line does not flicker"
    (over,) = memory.alarms(quiet, 107.0)
    assert over.text == f"until just now: {find_alarms(full)[0].text}"
    assert [alarm.since_s for alarm in memory.alarms(full, 109.0)] == [8.0]
    assert memory.alarms(quiet, 109.0 + FORGET_AFTER_S) == ()
    assert [alarm.since_s for alarm in memory.alarms(full, 120.0)] == [0.0]


def test_a_replica_that_no_longer_serves_has_no_measured_alarm() -> None:
    memory = memory_of_a_quiet_fleet()
    memory.alarms(picture(replica(**FULL), replica("r1")), 101.0)
    gone = picture(replica(state="drained"), replica("r1"))
    assert [alarm.rule for alarm in memory.alarms(gone, 102.0)] == ["drained"]


def test_an_alarm_about_a_state_ends_with_the_state() -> None:
    memory = memory_of_a_quiet_fleet()
    drained, quiet = picture(replica(state="drained"), replica("r1")), picture(replica(), replica("r1"))
    assert [alarm.since_s for alarm in memory.alarms(drained, 101.0)] == [0.0]
    assert memory.alarms(quiet, 102.0) == ()
    assert [alarm.since_s for alarm in memory.alarms(drained, 103.0)] == [0.0], "another drain"


def test_the_start_of_what_stood_in_the_first_picture_is_not_known() -> None:
    memory = AlarmMemory()
    memory.alarms(Picture(at=0.0, link=Link(url="unix:///x", state="connecting")), 99.0)
    drained = picture(replica(state="drained"), replica("r1"))
    memory.alarms(drained, 100.0)
    (found,) = memory.alarms(drained, 100.8)
    assert found.since_s is None
    assert found.at_least_s == pytest.approx(0.8)


LOST = Link(url="unix:///x", state="lost", age_s=12.0)


def test_a_lost_link_is_the_first_alarm_and_the_others_are_of_then() -> None:
    memory = memory_of_a_quiet_fleet()
    draining = picture(replica(state="draining"), replica("r1", invariant_violations=1))
    memory.alarms(draining, 101.0)
    found = memory.alarms(dataclasses.replace(draining, link=LOST), 115.0)
    assert found[0].text == "server not reachable for 12s; the view is old"
    assert [alarm.rule for alarm in found] == ["link_lost", "invariant_violations", "draining"]
    for alarm in found[1:]:
        assert alarm.text.startswith("as of then: ")
        assert alarm.action is None
        assert alarm.since_s == 2.0, "its clock stands"


def test_a_server_that_stops_gets_no_advice_to_undrain() -> None:
    stopping = picture(replica(state="draining"), replica("r1", state="stopping"))
    for alarm in find_alarms(stopping):
        assert "ndrain" not in (alarm.action or "")
    assert "ndrain" in (alarms(state="draining")["draining"].action or "")


def test_draining_says_for_how_long() -> None:
    drain = Operation(id="op-1", kind="drain", target="r0", phase="running", started_at=97.3)
    shown = dataclasses.replace(
        picture(replica(state="draining", running=15), replica("r1")), at=100.0, operations=(drain,)
    )
    (found,) = find_alarms(shown)
    assert found.text == "draining for 2.7s: 15 running, 50 blocks still held"


SLOW = {"ttft_s": Percentiles(p99=48.0), "queue_wait_s": QueueWait(p99=29.7)}


@pytest.mark.parametrize(("admitted_at", "fires"), [(95.0, True), (80.0, False)])
def test_slow_ttft_wants_somebody_to_have_queued_lately(admitted_at: float, fires: bool) -> None:
    admit = Event(seq=1, at=admitted_at, kind="admit", replica="r0", wait_s=3.0)
    shown = dataclasses.replace(picture(replica(**SLOW)), at=100.0, events=(admit,))
    assert bool(find_alarms(shown)) is fires


def test_what_waits_for_the_step_is_prefill_bound() -> None:
    step = StepMakeup(number=9, decode_tokens=8, prefill_tokens=504, token_budget=512, duration_s=0.096)
    found = alarms(**SLOW, waiting=3, waiting_reasons={"token_budget": 2, "behind": 7}, step=step)
    text = found["slow_ttft"].text
    assert "prefill-bound: 2 wait for the step's token budget (last step 512 of 512 tokens in 96 ms)" in text
    assert "not compute" not in text


@pytest.mark.parametrize(
    ("per_min", "advice"), [(0.0, "lower headroom"), (None, "lower headroom"), (9.0, "cancel")]
)
def test_nobody_is_told_to_admit_more_while_the_replica_preempts(per_min: float | None, advice: str) -> None:
    fields = {**QUEUEING, "waiting_reasons": {"headroom": 9}, "preemptions_per_min": per_min}
    action = alarms(**fields)["queueing_on_kv"].action
    assert action is not None
    assert action.startswith(advice)


def test_an_idle_replica_is_named_to_those_who_queue_beside_it() -> None:
    crowded = replica("r0", **{**QUEUEING, "waiting_reasons": {"kv": 9}})
    idle = replica("r1", running=0, waiting=0)
    busy = replica("r1", running=3, waiting=0)
    (alarm,) = [each for each in find_alarms(picture(crowded, idle)) if each.rule == "queueing_on_kv"]
    assert alarm.action == "r1 is idle: drain (D), then undrain"
    (alarm,) = [each for each in find_alarms(picture(crowded, busy)) if each.rule == "queueing_on_kv"]
    assert alarm.action is not None
    assert "idle" not in alarm.action


def test_a_replica_that_a_scale_ends_is_no_server_that_stops() -> None:
    scale = Operation(id="op-1", kind="scale", target="fleet", phase="running", started_at=0.0)
    shown = picture(replica(state="drained"), replica("r1", state="stopping"), operations=(scale,))
    assert any("undrain" in (alarm.action or "") for alarm in find_alarms(shown))


def test_what_is_fenced_missing_or_not_kept_is_said() -> None:
    fenced = replica(state="fenced", health=None, spec=ReplicaSpec(fenced="bad fan"))
    spec = FleetSpec(replicas=2)
    fleet = Fleet(name="f", model="m", spec=spec, specs_trouble="specs are not on the disk: full")
    alarms = {alarm.rule: alarm for alarm in find_alarms(picture(fenced, replica("r1"), fleet=fleet))}
    assert alarms["replica_fenced"].text == "fenced: bad fan; no process is started for it"
    assert alarms["replica_fenced"].action == "release it (F)", "by its key, as the others"
    assert alarms["too_few_replicas"].text == "1 replicas are there, 2 are wanted"
    assert alarms["specs_not_kept"].text == "specs are not on the disk: full"
    enough = picture(replica(), replica("r1"), fleet=Fleet(name="f", model="m", spec=spec))
    assert "too_few_replicas" not in {alarm.rule for alarm in find_alarms(enough)}


def upstream(name: str = "r0", **fields: object) -> Replica:
    base = {"state": "starting", "health": None, "launcher": "upstream", "upstream": "llama.cpp"}
    gone = {"was_ready": True, "unready_s": 130.0, "device": "127.0.0.1:18962"}
    why = {"error": "127.0.0.1:18962: ConnectError: All connection attempts failed"}
    return replica(name, **{**base, **gone, **why, **fields})


def test_an_upstream_that_does_not_answer_is_told_with_the_reason() -> None:
    (found,) = find_alarms(picture(replica("r0", launcher="upstream"), upstream("r1")))
    assert (found.rule, found.replica, found.severity) == ("replica_unreachable", "r1", "critical")
    assert found.text == (
        "llama.cpp at 127.0.0.1:18962 is not reachable for 2m10s:"
        " ConnectError: All connection attempts failed"
    )
    assert found.action == "look at that server; it is looked for again"
    again = find_alarms(picture(replica(), upstream("r1", error="127.0.0.1:18962 does not answer: E")))
    assert again[0].text == "llama.cpp at 127.0.0.1:18962 is not reachable for 2m10s: E"


def test_an_alarm_has_one_duration() -> None:
    """Its text says since when nobody answers; when the alarm began would stand behind the error's words."""
    shown = picture(replica("r0", launcher="upstream"), upstream("r1"))
    (found,) = find_alarms(shown)
    lasting = dataclasses.replace(shown, alarms=(replace(found, since_s=77.0),))
    row = plain(alarm_rows(lasting, 200, 1)[0])
    assert "not reachable for 2m10s" in row
    assert "77s" not in row


@pytest.mark.parametrize(
    ("fields", "fires"),
    [
        ({"unready_s": 2.0}, False),
        ({"unready_s": 4.0}, True),
        ({"was_ready": False, "unready_s": 9.0, "upstream": None}, False),
        ({"was_ready": False, "unready_s": 11.0, "upstream": None, "error": "a:1: it is loading"}, True),
        ({"unready_s": None}, False),
        ({"launcher": "local", "upstream": None, "was_ready": False, "unready_s": 500.0}, False),
        ({"launcher": "joined", "upstream": None, "unready_s": 5.0, "error": None}, False),
        ({"launcher": "joined", "upstream": None, "unready_s": 11.0, "error": None}, True),
    ],
)
def test_who_is_missed(fields: dict[str, object], fires: bool) -> None:
    found = find_alarms(picture(replica(), upstream("r1", **fields)))
    assert [alarm.rule for alarm in found] == (["replica_unreachable"] if fires else [])


def test_where_no_upstream_answers_nothing_is_said_to_load() -> None:
    found = {alarm.rule: alarm for alarm in find_alarms(picture(upstream("r0"), upstream("r1")))}
    alarm = found["no_ready_replica"]
    assert alarm.text.startswith("no upstream answers (2 starting)")
    assert (alarm.action, alarm.severity) == ("start the servers", "critical")
    loads = upstream("r1", error="127.0.0.1:18962: it is loading", was_ready=False)
    alarm = find_alarms(picture(upstream("r0"), loads))[0]
    assert (alarm.text.partition(" (")[0], alarm.action) == ("no upstream is ready", "see what each says")


KILLED = "its process was killed by SIGKILL"


def _fed(*told: tuple[str, str, str]) -> tuple[Event, ...]:
    return tuple(
        Event(seq=seq, at=float(seq), kind=kind, replica=name, reason=reason)  # type: ignore[arg-type]
        for seq, (kind, name, reason) in enumerate(told)
    )


@pytest.mark.parametrize(
    ("since", "says"),
    [
        ([], f"restarting: {KILLED}; incarnation 2"),
        ([("move", "r0", "replica_lost")] * 12, f"restarting: {KILLED}, 12 requests moved; incarnation 2"),
        (
            [("move", "r0", "replica_lost"), ("finish", "r0", "error"), ("finish", "r1", "error")],
            f"restarting: {KILLED}, 1 request moved, 1 ended with an error; incarnation 2",
        ),
    ],
)
def test_a_lost_replica_says_what_its_requests_came_to_and_no_more(
    since: list[tuple[str, str, str]], says: str
) -> None:
    """They go on elsewhere: only what the feed tells to have ended has ended."""
    before = [("move", "r0", "replica_lost"), ("finish", "r0", "error"), ("replica", "r0", "restarting")]
    lost = replica(state="restarting", incarnation=2, error=KILLED)
    shown = picture(lost, replica("r1"), events=_fed(*before, *since))
    assert [alarm.text for alarm in find_alarms(shown)] == [says]
    row = plain(alarm_rows(dataclasses.replace(shown, alarms=find_alarms(shown)), 120, 1)[0])
    assert says.partition(";")[0] in row
    assert "wait for ready" in row
