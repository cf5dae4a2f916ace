"""What must stand whole in a section, whatever the room."""

import dataclasses

import msgspec
import pytest
from infer_console.state.picture import Demand, Picture, ReplicaPicture
from infer_console.view.alarms import alarm_lines, alarm_rows
from infer_console.view.bindings import keys_of
from infer_console.view.events import event_row, moment
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.gauge import BATCH_MARK, kv_gauge
from infer_console.view.help import help_rows
from infer_console.view.key_bar import key_bar
from infer_console.view.keys import ALL
from infer_console.view.look import Look, Size
from infer_console.view.operations import operation_section
from infer_console.view.replica_screen import replica_screen
from infer_console.view.row import plain
from infer_console.view.traffic import traffic_section
from infer_console.view.waiting import waiting_section
from infer_engine.protocol import Alarm, Event, FleetSpec, Kv, TenantLimits
from support import pictures

LONG = Alarm(
    rule="preempting",
    severity="warning",
    replica="r5",
    since_s=238,
    text="preempting 4/min: work is thrown away and done again; KV 98%, 29,900 of 30,517 blocks",
    action="raise headroom (H): admit fewer, so that those running have room to grow",
)


def lines(picture: Picture, look: Look, size: Size, replica: bool = False) -> list[str]:
    draw = replica_screen if replica else fleet_screen
    return [plain(row) for row in draw(picture, look, size, pictures.NOW)]


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_an_alarms_cause_comes_before_its_action_and_this_before_its_numbers(width: int) -> None:
    picture = pictures.incident(alarms=(LONG,))
    assert LONG.action is not None
    (row,) = alarm_rows(picture, width, 1)
    assert "r5: preempting 4/min: work is thrown away and done again" in plain(row)
    assert "3m58s" in plain(row)
    assert ("→ raise headroom (H)" in plain(row)) == (width >= 100)
    assert (LONG.action in plain(row)) == (width >= 160)


def test_an_action_that_does_not_fit_beside_the_cause_has_a_row() -> None:
    picture = pictures.incident(alarms=(LONG,))
    assert LONG.action is not None
    assert alarm_lines(picture, 120) == 2
    first, second = (plain(row) for row in alarm_rows(picture, 120, 2))
    assert LONG.text in first
    assert second.strip() == f"→ {LONG.action}"


def test_one_row_shows_the_worst_and_how_many_there_are() -> None:
    (row,) = alarm_rows(pictures.incident(), 80, 1)
    assert plain(row).startswith(" ▲ 1/3 r2: 23 wait")


def test_an_unknown_start_is_a_lower_bound() -> None:
    alarm = msgspec.structs.replace(LONG, since_s=None, at_least_s=0.8, action=None)
    (row,) = alarm_rows(pictures.incident(alarms=(alarm,)), 120, 1)
    assert "≥.8s" in plain(row)


@pytest.mark.parametrize(("embedded", "words"), [(True, "they end with"), (False, "they outlive")])
def test_who_outlives_whom(embedded: bool, words: str) -> None:
    rows = operation_section(pictures.incident(embedded=embedded), 120, 5, pictures.NOW)
    assert words in plain(rows[0])


def test_queue_and_keys_on_a_small_replica_screen() -> None:
    shown = lines(pictures.incident(), Look(replica="r2"), Size(80, 24), replica=True)
    at = next(number for number, line in enumerate(shown) if "QUEUE 23" in line)
    assert "7f3b02" in shown[at + 1]
    assert shown[at + 4].startswith("   … 20 more: kv 13")
    assert any("more running" in line for line in shown)
    assert any(line.startswith(" ▲ 1") for line in shown)
    assert any("why:" in line for line in shown)
    assert "X cancel" in shown[-1]


def test_a_full_batch_leaves_a_third_to_the_queue() -> None:
    picture = pictures.incident()
    r2 = picture.replicas["r2"]
    rows = dict(r2.rows)
    model = next(row for row in rows.values() if row.state == "running")
    for number in range(40):
        rows[f"more{number}"] = msgspec.structs.replace(model, id=f"more{number}")
    full = ReplicaPicture(r2.status, rows, tuple(rows), r2.blocks)
    shown = lines(
        dataclasses.replace(picture, replicas={"r2": full}), Look(replica="r2"), Size(120, 36), replica=True
    )
    roster = next(number for number, line in enumerate(shown) if "ROSTER" in line)
    queue = next(number for number, line in enumerate(shown) if "QUEUE" in line)
    blocks = next(number for number, line in enumerate(shown) if "── BLOCKS" in line)
    assert 3 * (blocks - queue) >= blocks - roster
    assert "more running" in shown[queue - 1]
    assert " more: kv" in shown[blocks - 1]


def test_of_a_queue_longer_than_its_list_the_rest_is_a_number() -> None:
    picture = pictures.incident()
    r2 = picture.replicas["r2"]
    longer = ReplicaPicture(msgspec.structs.replace(r2.status, waiting=5_023), r2.rows, r2.order, r2.blocks)
    shown = lines(
        dataclasses.replace(picture, replicas={"r2": longer}), Look(replica="r2"), Size(120, 36), replica=True
    )
    at = next(number for number, line in enumerate(shown) if "QUEUE 5,023" in line)
    rest = next(line for line in shown[at:] if " more: " in line)
    assert rest.endswith("not listed 5,000")
    listed = sum(line.lstrip("▸ ").split(" ")[0].isdigit() for line in shown[at + 1 : shown.index(rest)])
    assert f"… {5_023 - listed:,} more" in rest


def test_the_lens_is_in_the_bar_at_120_columns() -> None:
    assert "v lens" in plain(key_bar("replica", 120))


def test_a_filter_leaves_its_trace_on_the_fleet() -> None:
    shown = lines(pictures.incident(), Look(filter="r1"), Size(120, 36))
    assert any("REPLICAS 1 of 8" in line and "filter: r1" in line for line in shown)


def test_traffic_tells_all_at_120_columns() -> None:
    fleet = pictures.small().fleet
    assert fleet is not None
    reason = "interactive TTFT p99 rose from 0.41 s to 2.31 s while the test traffic ran; the limit is 2 s"
    over = msgspec.structs.replace(
        fleet.traffic, running=False, failed=3, not_sent=17, sent=1421, finished=1312, stopped_because=reason
    )
    picture = pictures.small(fleet=msgspec.structs.replace(fleet, traffic=over))
    told = " ".join(line.strip() for line in lines(picture, Look(), Size(120, 36)))
    assert reason in told
    assert "not sent 17" in told
    assert "failed 3" in told


def test_a_control_path_stands_in_one_row() -> None:
    long = "unix:///run/user/1000/infer-console/" + "deep/" * 12 + "eu-west.sock"
    picture = pictures.incident(link=dataclasses.replace(pictures.incident().link, url=long))
    rows = [plain(row) for row in traffic_section(picture, 60, 12)]
    control = [row for row in rows if "eu-west.sock" in row]
    assert len(control) == 1
    assert control[0].startswith(" control  …")
    assert control[0].endswith("deep/eu-west.sock")


def test_help_and_hint_tell_how_to_connect() -> None:
    url = "unix:///run/infer-console/eu-west.sock"
    assert any(f"--connect {url}" in plain(row) for row in help_rows("fleet", 80, 24, url))
    assert not any("--connect" in plain(row) for row in help_rows("fleet", 80, 24, "recording.icr"))
    assert any(f"--connect {url}" in line for line in lines(pictures.quiet(), Look(), Size(80, 24)))


@pytest.mark.parametrize("size", [Size(120, 36), Size(80, 24)])
def test_help_names_every_key_of_every_screen(size: Size) -> None:
    for screen in ALL:
        rows = [plain(row) for row in help_rows(screen, *size, "unix:///run/infer-console/eu-west.sock")]
        assert len(rows) <= size.height
        for key in (each for each in keys_of(screen) if each.help):
            told = [row for row in rows if f" {key.shown} " in row]
            assert any(key.help[:50] in row or key.label in row for row in told), (screen, key.name)


def test_help_counts_what_it_has_no_room_for() -> None:
    rows = [plain(row) for row in help_rows("fleet", 40, 12)]
    assert len(rows) <= 12
    assert any("more in a taller terminal" in row for row in rows)
    assert not any("taller" in plain(row) for row in help_rows("fleet", 80, 24))


def test_the_help_of_a_recording_says_how_it_is_played_and_that_nothing_can_be_done() -> None:
    rows = [plain(row) for row in help_rows("fleet", 120, 50, "x.icr", why_not="a recording", replay=True)]
    assert any("play or stop; how fast: infer-console replay FILE --speed 4" in row for row in rows)
    assert any("capitals are off: a recording" in row for row in rows)
    assert not any("back to now" in row for row in rows)


def test_the_batch_mark_is_never_right_of_the_admit_mark() -> None:
    kv = Kv(total=100, used=10, cached=0, free=90, admit_limit=30, batch_limit=65)
    text = plain(kv_gauge(kv, 42))
    assert text.index(BATCH_MARK) == 12


def test_who_just_arrived_is_not_a_dash() -> None:
    picture = pictures.incident()
    r2 = picture.replicas["r2"]
    rows = {
        id: msgspec.structs.replace(row, waiting_reason=None, behind=None) if row.state == "waiting" else row
        for id, row in r2.rows.items()
    }
    bare = dataclasses.replace(picture, replicas={"r2": ReplicaPicture(r2.status, rows, r2.order)})
    shown = "\n".join(lines(bare, Look(replica="r2"), Size(80, 24), replica=True))
    assert "head 7f3b02 just arrived" in shown
    assert "20 more: just arrived 20" in shown


def test_operations_are_told_in_words() -> None:
    event = Event(
        seq=99,
        at=pictures.NOW,
        kind="operation",
        reason="running",
        operation="op-3",
        actor="root",
        message="inject fleet running",
    )
    shown = lines(pictures.incident(events=(event,)), Look(), Size(120, 36))
    assert any("op-3 inject on the whole fleet started by root" in line for line in shown)


def test_a_request_that_waits_for_the_next_life_of_its_replica_does_not_move_to_itself() -> None:
    def told(to: str | None) -> str:
        event = Event(
            seq=9,
            at=0.0,
            kind="move",
            reason="replica_lost",
            replica="r0",
            to_replica=to,
            request="7f3b02",
        )
        return " ".join(plain(event_row(event, 120)).split()[1:])

    assert told(None) == "MOVE r0 7f3b02 replica lost, waits for a replica"
    assert told("r0") == "RESUME r0 7f3b02 replica lost"
    assert told("r1") == "MOVE r0→r1 7f3b02 replica lost"


def test_pausing_and_going_on_do_not_read_alike() -> None:
    def told(message: str) -> str:
        event = Event(seq=9, at=0.0, kind="operation", reason="succeeded", operation="op-9", message=message)
        return plain(event_row(event, 120))

    assert "SHED ON: the batch tier pauses" in told("shed on fleet succeeded")
    assert "shed off: the batch tier goes on" in told("shed off fleet succeeded")


def test_minutes_beside_another_pane_do_not_look_like_hours() -> None:
    assert moment(pictures.NOW + 0.25, 40) == "11:26.2"
    assert moment(pictures.NOW, 80) == "03:11:26"


@pytest.mark.parametrize("width", [60, 80, 118])
def test_where_the_action_has_a_row_of_its_own_the_text_goes_on_before_it(width: int) -> None:
    text = "the gateway lags: its loop is late by 360 ms (p99), every stream with it; 36 of 4,096 connections"
    alarm = Alarm(rule="x", severity="warning", since_s=146.0, text=text, action="8: why")
    picture = pictures.incident(alarms=(alarm,))
    first, second = (plain(row) for row in alarm_rows(picture, width, 2))
    assert first.endswith(" · 2m26s")
    assert second.endswith("→ 8: why")
    told = f"{first.removesuffix(' · 2m26s')} {second.removesuffix('→ 8: why').strip()}"
    shown = told.removeprefix(" △ 1 ").strip()
    assert text.startswith(shown.removesuffix("…"))
    assert shown == text or width == 60


def test_one_trouble_of_many_replicas_is_one_alarm_that_names_them() -> None:
    slow = [
        Alarm(
            rule="slow_ttft",
            severity="warning",
            replica=f"r{number}",
            since_s=20.0 + number,
            text=f"TTFT p99 {9 - number}.0s: queueing, not compute; the gateway lags",
            action="see its queue",
        )
        for number in range(6)
    ]
    lag = Alarm(rule="gateway_lag", severity="warning", since_s=9.0, text="the gateway lags", action="8: why")
    picture = pictures.incident(alarms=(*slow, lag))
    rows = [plain(row) for row in alarm_rows(picture, 160, 4)]
    assert len(rows) == alarm_lines(picture, 160) == 2
    assert rows[0].startswith(
        " △ 1 r0: TTFT p99 9.0s: queueing, not compute; likewise r1, r2, r3 and 2 more; "
        "the gateway lags · 20s "
    )
    assert rows[1].startswith(" △ 7 the gateway lags · 9.0s"), "its number among those that ! steps through"
    failed = [
        Alarm(
            rule="replica_failed",
            severity="critical",
            replica=f"r{number}",
            since_s=1.0,
            text=f"failed: {why}",
        )
        for number, why in enumerate(("no memory", "killed", "killed"))
    ]
    rows = [plain(row) for row in alarm_rows(pictures.incident(alarms=tuple(failed)), 160, 4)]
    assert [row.split(" · 1.0s")[0] for row in rows] == [
        " ▲ 1 r0: failed: no memory",
        " ▲ 2 r1: failed: killed; likewise r2",
    ]
    budget = [
        msgspec.structs.replace(each, since_s=1.0, action=f"{each.replica}: token budget 2048→1024")
        for each in failed
    ]
    rows = [plain(row) for row in alarm_rows(pictures.incident(alarms=tuple(budget[1:])), 160, 4)]
    assert [" ".join(row.split()) for row in rows] == [
        "▲ 1 r1: failed: killed; likewise r2 · 1.0s → r1: token budget 2048→1024"
    ]
    own = [plain(row) for row in alarm_rows(picture, 160, 4, "r4")]
    assert [row[:20] for row in own] == [" △ 1 r4: TTFT p99 5.", " △ 2 the gateway lag"]


def demand(picture: Picture) -> Picture:
    rows = [row for replica in picture.replicas.values() for row in replica.rows.values()]
    waiting = [row for row in rows if row.state == "waiting"][:3]
    limits = {"acme": TenantLimits(long_prefills=1, kv_share=0.25), "eve\x1b[2J": TenantLimits(tier="batch")}
    told = Demand(tuple(waiting), TenantLimits(requests_per_minute=1_200), limits)
    return dataclasses.replace(picture, demand=told)


@pytest.mark.parametrize(("size", "whole"), [(Size(120, 36), False), (Size(300, 80), True)])
def test_who_waits_longest_is_named_and_why(size: Size, whole: bool) -> None:
    text = lines(demand(pictures.incident()), Look(), size)
    first = next(line for line in text if line.startswith(" kv "))
    assert "7f3b02 acme 47s r2" in first
    assert ("short 6,016 of 6,283 blk" in first) == whole
    # Nobody was named who waits for that: then it is said what it means.
    assert "free, but above the admit mark" in next(line for line in text if line.startswith(" headroom "))


@pytest.mark.parametrize("size", [Size(120, 36), Size(200, 50), Size(80, 36)])
def test_limits_of_tenants_stand_beside_them_and_in_the_title(size: Size) -> None:
    text = lines(demand(pictures.incident()), Look(), size)
    assert "limits: acme, eve␛[2J, all others ──" in next(line for line in text if "TENANTS" in line)
    assert "KV≤25%, 1 l" in next(
        line for line in text if ("acme" in line and "99,840" in line) or "34%" in line
    )
    assert "limits: none" in "\n".join(
        lines(dataclasses.replace(pictures.incident(), demand=Demand(limits={})), Look(), size)
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 36), (200, 50)])
@pytest.mark.parametrize("shed", [False, True])
def test_what_is_shed_does_not_give_way_and_why_it_waits_says_so(width: int, height: int, shed: bool) -> None:
    picture = pictures.incident()
    assert picture.fleet is not None
    assert picture.totals is not None
    fleet = msgspec.structs.replace(picture.fleet, spec=FleetSpec(replicas=8, shed=shed))
    totals = msgspec.structs.replace(picture.totals, waiting_reasons={"tier": 3})
    looked = picture.replicas["r2"]
    rows = {
        id: msgspec.structs.replace(row, waiting_reason="tier") if row.state == "waiting" else row
        for id, row in looked.rows.items()
    }
    replicas = {**picture.replicas, "r2": dataclasses.replace(looked, rows=rows)}
    picture = dataclasses.replace(picture, fleet=fleet, totals=totals, replicas=replicas, demand=None)
    why = [line for line in lines(picture, Look(replica="r2"), Size(width, height), True) if "why: " in line]
    assert ["(batch is shed)" in line for line in why] == [shed]
    alone = dataclasses.replace(picture, replicas={})
    told = [plain(row) for row in waiting_section(alone, width, 3) if plain(row).startswith(" tier ")]
    assert ["batch is shed" in line for line in told] == [shed]
