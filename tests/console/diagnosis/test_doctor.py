"""The doctor's memory and manners: time is the pictures', what is explained is not told twice, alarms carry
the cause."""

import dataclasses

import pytest
from infer_console.diagnosis.causes import with_causes
from infer_console.diagnosis.doctor import HOLD_S, LONGEST_GAP_S, MOST_TOLD, Doctor
from infer_console.diagnosis.moved import first_moved
from infer_console.diagnosis.track import LOOKS, Track
from infer_console.state.finding import Finding, Proposal
from infer_console.state.picture import Link, Picture, ReplicaPicture, Series
from infer_engine.protocol import (
    Alarm,
    Fleet,
    GatewayStatus,
    QueueWait,
    Replica,
    StepMakeup,
    TenantUse,
    TierUse,
    Totals,
    TrafficStatus,
)
from msgspec.structs import replace
from support.pictures import NOW, kv


def crowded(name: str, **changes: object) -> Replica:
    fields: dict[str, object] = {
        "id": name,
        "state": "ready",
        "health": "ok",
        "running": 9,
        "waiting": 6,
        "kv": kv(27_000, 0),
        "batch": TierUse(),
        "waiting_reasons": {"kv": 6},
    } | changes
    return Replica(**fields)  # pyright: ignore[reportArgumentType]


def picture(at: float, *replicas: Replica, lag_s: float = 0.001, state: str = "live") -> Picture:
    return Picture(
        at=at,
        link=Link("unix:///x", state, age_s=0.1),  # pyright: ignore[reportArgumentType]
        fleet=Fleet(name="f", model="m", gateway=GatewayStatus(loop_lag_p99_s=lag_s)),
        totals=Totals(replicas=len(replicas), ready=len(replicas)),
        replicas={each.id: ReplicaPicture(each) for each in replicas},
    )


def seen(doctor: Doctor, *pictures: Picture) -> list[str]:
    found: tuple[Finding, ...] = ()
    for each in pictures:
        found = doctor.look(each)
    return [finding.id for finding in found]


def test_it_takes_a_queue_that_lasts() -> None:
    doctor = Doctor()
    assert seen(doctor, *(picture(NOW + second, crowded("r0")) for second in range(3))) == []
    assert seen(doctor, picture(NOW + 3, crowded("r0"))) == ["queueing_on_kv/r0"]
    found = doctor.look(picture(NOW + 9, crowded("r0")))
    assert found[0].since_s == 9.0
    assert found[0].evidence["waiting"] == 6
    assert found[0].confidence == 1.0


def test_a_queue_of_batch_is_no_trouble() -> None:
    doctor, batch = Doctor(), TierUse(waiting=6)
    assert seen(doctor, *(picture(NOW + second, crowded("r0", batch=batch)) for second in range(9))) == []


@pytest.mark.parametrize(
    ("oldest_s", "reason", "found"),
    [
        (0.02, "headroom", []),
        (None, "headroom", []),
        (3.0, "headroom", ["tenant_crowding/"]),
        (3.0, "slots", []),
        (3.0, "token_budget", []),
    ],
)
def test_who_stands_in_line_for_a_step_or_a_slot_is_not_crowded(
    oldest_s: float | None, reason: str, found: list[str]
) -> None:
    """Where many come, somebody waits at every look, and nobody for long; and who waits for a slot does not
    wait for the blocks that somebody holds."""
    tenants = (
        TenantUse(tenant="acme", running=8, kv_blocks=700),
        TenantUse(tenant="globex", running=9, waiting=1, kv_blocks=100),
    )
    doctor = Doctor()
    status = crowded(
        "r0",
        waiting=1,
        kv=kv(800, 4_000),
        waiting_reasons={reason: 1},
        tenants=tenants,
        queue_wait_s=QueueWait(oldest=oldest_s),
    )
    pictures = [picture(NOW + second, status) for second in range(9)]
    looks = [
        dataclasses.replace(each, totals=Totals(replicas=1, ready=1, tenants=list(tenants)))
        for each in pictures
    ]
    assert [each for each in seen(doctor, *looks) if each.startswith("tenant")] == found


def test_more_pictures_than_one_a_second_are_not_looked_at() -> None:
    doctor = Doctor()
    assert seen(doctor, *(picture(NOW + tenth / 100, crowded("r0")) for tenth in range(90))) == []


def test_what_was_found_stands_a_little_longer() -> None:
    doctor, calm = Doctor(), crowded("r0", waiting=0, waiting_reasons={})
    seen(doctor, *(picture(NOW + second, crowded("r0")) for second in range(5)))
    assert seen(doctor, picture(NOW + 4 + HOLD_S - 1, calm)) == ["queueing_on_kv/r0"]
    assert seen(doctor, picture(NOW + 4 + HOLD_S, calm)) == []


def test_nothing_new_is_said_of_a_server_that_is_not_reached() -> None:
    doctor = Doctor()
    seen(doctor, *(picture(NOW + second, crowded("r0")) for second in range(5)))
    lost = [picture(NOW + second, crowded("r0"), lag_s=9.0, state="lost") for second in range(5, 30)]
    assert seen(doctor, *lost) == ["queueing_on_kv/r0"]


def test_after_a_gap_or_a_jump_back_it_begins_anew() -> None:
    for jump_s in (LONGEST_GAP_S + 1, -100.0):
        doctor = Doctor()
        seen(doctor, *(picture(NOW + second, crowded("r0")) for second in range(5)))
        assert seen(doctor, picture(NOW + 4 + jump_s, crowded("r0"))) == []


def test_one_rule_on_many_replicas_is_told_once() -> None:
    doctor = Doctor()
    many = [crowded(f"r{number}") for number in range(40)]
    for second in range(5):
        found = doctor.look(picture(NOW + second, *many))
    assert [finding.id for finding in found] == ["queueing_on_kv/r0"]
    assert found[0].replicas == [f"r{number}" for number in range(1, 40)]
    assert found[0].words.endswith(f"likewise r1, r2, r3 and {39 - MOST_TOLD} more")
    assert found[0].concerns("r17")


def test_a_stalled_replica_explains_the_queue_on_it() -> None:
    doctor = Doctor()
    stalled = crowded("r0", health="stalled", step_age_s=8.0)
    idle = crowded("r1", running=0, waiting=0, waiting_reasons={}, kv=kv(0, 0))
    for second in range(6):
        found = doctor.look(picture(NOW + second, stalled, idle))
    assert [finding.id for finding in found] == ["replica_stalled/r0"]
    assert found[0].explains == ["queueing_on_kv", "router_imbalance"]
    assert found[0].action is not None
    assert found[0].action.command == "infer-console fence r0"


@pytest.mark.parametrize(("connections", "found"), [(0, []), (1, ["gateway_lag/"])])
def test_a_late_loop_is_an_alarm_where_somebody_is_connected(connections: int, found: list[str]) -> None:
    doctor, gateway = Doctor(), GatewayStatus(loop_lag_p99_s=0.4, connections=connections)
    fleet = Fleet(name="f", model="m", gateway=gateway)
    looks = [dataclasses.replace(picture(NOW + second), fleet=fleet) for second in range(6)]
    assert seen(doctor, *looks) == found


def _interfered(second: int, traffic: TrafficStatus) -> Picture:
    """Steps of 20 ms without a chunk, then of 400 ms with one; four run of a batch as large as the budget."""
    prefill = 0 if second < 5 else 252
    step = StepMakeup(
        number=second,
        decode_tokens=4,
        prefill_tokens=prefill,
        token_budget=256,
        duration_s=0.4 if prefill else 0.02,
    )
    status = crowded("r0", running=4, waiting=0, waiting_reasons={}, kv=kv(100, 0), step=step)
    status = replace(status, max_running=256, limits={"max_running": 256, "token_budget": 256})
    fleet = Fleet(name="f", model="m", gateway=GatewayStatus(), traffic=traffic)
    totals = Totals(replicas=1, ready=1, running=4, waiting=0)
    return dataclasses.replace(picture(NOW + second, status), fleet=fleet, totals=totals)


def _interference(traffic: TrafficStatus) -> Proposal | None:
    doctor, found = Doctor(), ()
    for second in range(12):
        found = doctor.look(_interfered(second, traffic))
    (finding,) = found
    assert finding.rule == "prefill_interference"
    return finding.action


def test_shorter_steps_are_proposed_where_the_batch_is_as_large_as_the_budget() -> None:
    """No budget may be smaller than the batch: both are cut."""
    action = _interference(TrafficStatus())
    assert action is not None
    assert action.words == "r0: token budget 256→128, batch 256→128"
    assert action.command == "infer-console limits token_budget=128 max_running=128 --replica r0"


def test_test_traffic_that_is_the_load_is_stopped_first() -> None:
    action = _interference(TrafficStatus(running=True, profile="long-context", in_flight=3))
    assert action is not None
    assert (action.words, action.command) == ("stop the test traffic (I)", "infer-console inject --stop")
    few = _interference(TrafficStatus(running=True, profile="chat", in_flight=1))
    assert few is not None
    assert few.name == "limits"


def test_unknown_numbers_speak_for_nothing() -> None:
    doctor = Doctor()
    bare = Replica(id="r0", state="ready")
    assert seen(doctor, *(picture(NOW + second, bare) for second in range(20))) == []


# --- alarms ------------------------------------------------------------------------------------------------


def finding(rule: str, replica: str | None = None, words: str = "because") -> Finding:
    return Finding(rule=rule, replica=replica, confidence=1.0, words=words)


def alarm(rule: str, replica: str | None = None, text: str = "queueing on KV: 9 wait; KV 90%") -> Alarm:
    return Alarm(rule=rule, severity="critical", replica=replica, text=text)


def test_an_alarm_is_told_its_cause() -> None:
    shown = with_causes([alarm("queueing_on_kv", "r0")], [finding("tenant_crowding", words="acme holds 82%")])
    assert [each.text for each in shown] == ["queueing on KV: 9 wait; acme holds 82%"]


def test_what_is_proposed_against_its_cause_is_what_an_alarm_proposes() -> None:
    """Not what is usual against such an alarm: a lower mark lets in more of the tenant that crowds."""
    usual = replace(alarm("queueing_on_kv", "r0"), action="lower headroom (H), or add capacity")
    limit = Proposal(name="tenant", target="acme", words="acme to 41% of each pool", effect="")
    (shown,) = with_causes([usual], [replace(finding("tenant_crowding"), action=limit)])
    assert shown.action == "acme to 41% of each pool"
    (shown,) = with_causes([usual], [finding("tenant_crowding")])
    assert shown.action == usual.action


def test_what_does_not_cause_it_is_an_alarm_of_its_own() -> None:
    shown = with_causes(
        [alarm("queueing_on_kv", "r0")], [finding("gateway_lag"), finding("kv_pressure", "r1")]
    )
    assert [each.rule for each in shown] == ["queueing_on_kv", "gateway_lag", "kv_pressure"]
    assert shown[0].text == "queueing on KV: 9 wait; KV 90%"


def test_who_waits_in_a_replicas_queue_is_not_told_that_the_gateway_lags() -> None:
    """What is lost before the queue is not why somebody waited in it; a tenant may be."""
    slow = alarm("slow_ttft", "r0", "TTFT p99 43.2s, queue wait p99 43.2s: queueing, not compute")
    shown = with_causes([slow], [finding("gateway_lag"), finding("tokenizer_lag")])
    assert shown[0].text == slow.text
    shown = with_causes([slow], [finding("gateway_lag"), finding("tenant_crowding", words="; acme")])
    assert shown[0].cause == "tenant_crowding"


def test_a_finding_that_says_the_same_is_not_told_twice() -> None:
    alarms = [alarm("queueing_on_kv", "r0")]
    assert with_causes(alarms, [finding("queueing_on_kv", "r0")]) == tuple(alarms)


def test_of_a_lost_server_nothing_is_added() -> None:
    alarms = [alarm("link_lost", None, "gone")]
    assert with_causes(alarms, [finding("gateway_lag")]) == tuple(alarms)


# --- numbers -----------------------------------------------------------------------------------------------


def test_a_track_is_bounded_and_knows_its_gaps() -> None:
    track = Track(("a",))
    assert (track.last("a"), track.change("a", 10), track.slope_per_s("a", 10)) == (None, None, None)
    for second in range(3 * LOOKS):
        track.add(NOW + second, {"a": float(second)})
    assert len(track.values("a", 1e9)) == LOOKS
    assert track.last("a") == 3 * LOOKS - 1
    assert track.change("a", 10) == 10
    assert track.change("a", 20, 10) == 10
    assert track.slope_per_s("a", 20) == (1.0, 1.0)
    assert track.back("a", 5) == 3 * LOOKS - 6
    track.add(NOW + 3 * LOOKS, {})
    assert track.last("a") is None
    assert not track.holds("a", 0, 0)
    track.add(NOW + 3 * LOOKS + 1, {"a": 7.0})
    assert track.held_s("a", 1) == 0.0
    assert track.values("a", 2) == [3 * LOOKS - 1.0, 7.0]


def test_which_moved_first() -> None:
    calm = [0.2] * 100
    ttft = Series(2.0, (*calm, *([3.0] * 8)))
    itl = Series(2.0, tuple([0.03] * 106 + [0.3, 0.4]))
    base = dataclasses.replace(picture(NOW), history={"ttft_p99": ttft, "itl_p99": itl})
    moved = first_moved(base)
    assert moved is not None
    assert (moved.first, moved.at) == ("TTFT", NOW - 14)
    assert moved.itl is not None
    assert (moved.itl.at, moved.itl.before_s) == (NOW - 2, 0.03)
    assert first_moved(dataclasses.replace(base, history={"ttft_p99": Series(2.0, tuple(calm))})) is None
    assert first_moved(picture(NOW)) is None


@pytest.mark.parametrize(("launcher", "proposed"), [("process", True), ("upstream", False)])
def test_a_batch_of_somebody_elses_server_is_not_proposed_to_grow(launcher: str, proposed: bool) -> None:
    """What is sent there beyond its slots waits inside it."""
    ttft = Series(2.0, (*([0.2] * 100), *([3.0] * 8)))
    full = crowded(
        "r0", running=4, waiting_reasons={"slots": 6}, kv=kv(100, 4_000), max_running=4, launcher=launcher
    )
    full = replace(full, limits={"max_running": 4})
    totals = Totals(replicas=1, ready=1, waiting=6, waiting_reasons={"slots": 6})
    look = dataclasses.replace(picture(NOW, full), history={"ttft_p99": ttft}, totals=totals)
    (found,) = Doctor().look(look)
    assert found.rule == "latency_moved"
    assert (found.action is not None) is proposed


def test_a_proposal_is_a_line_for_a_shell() -> None:
    tenant = Proposal(name="tenant", target="a; rm -rf", params={"kv_share": "34"}, words="", effect="")
    assert tenant.command == "infer-console tenant 'a; rm -rf' --limit kv_share=34%"
    assert replace(tenant, name="shed", target=None, params={}).command == "infer-console shed on"
    headroom = {"headroom": "20%", "revert_after": "10m"}
    command = replace(tenant, name="headroom", target="r1", params=headroom).command
    assert command == "infer-console headroom 20% --replica r1 --revert-after 10m"
    assert (
        replace(tenant, name="scale", target=None, params={"replicas": "5"}).command
        == "infer-console scale 5"
    )
