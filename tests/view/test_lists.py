"""What the lists and bars are made of."""

import dataclasses

import msgspec
import pytest
from infer_console.state.picture import TimelinePicture
from infer_console.view.events import event_rows
from infer_console.view.life import Stage, stages
from infer_console.view.listing import counts, every_item, listed
from infer_console.view.look import REQUEST_SORTS, Look
from infer_console.view.operations import eta_s
from infer_console.view.order import operations, pane_ids
from infer_console.view.requests import request_table, why_cell
from infer_console.view.row import plain
from infer_console.view.streams import panel_rows
from infer_console.view.timeline import clock_pace, timeline_section
from infer_console.view.token_flow import level, marks, shape_rows, stall_s, usual_s
from infer_console.view.ttft_bar import bar_row, parts_of
from infer_engine.protocol import Event, Operation, Simulation, Timeline, TimelineEntry, TtftSplit
from support import list_pictures, pictures
from support.list_pictures import LIVED, WAITS
from support.pictures import NOW


def test_the_order_is_waiting_running_ended_each_by_its_age() -> None:
    items = listed(list_pictures.listed(), Look())
    assert [item.state for item in items] == ["waiting"] * 24 + ["running"] * 12 + ["ended"] * 6
    ages = [item.row.age_s for item in items if item.row is not None and item.state == "waiting"]
    assert ages == sorted(ages, reverse=True)
    assert [item.id for item in items[-6:]] == ["7f2c10", "7f3f00", "7df2e1", "7f0002", "7f0001", "7f0000"]


def test_every_order_lists_the_same_requests_and_the_ended_last() -> None:
    picture = list_pictures.listed()
    whole = {item.id for item in every_item(picture)}
    for sort in REQUEST_SORTS:
        items = listed(picture, Look(request_sort=sort))
        assert {item.id for item in items} == whole
        assert [item.state for item in items[-6:]] == ["ended"] * 6
        assert len(items) == len(whole)


def test_what_ended_is_not_listed_as_running_too() -> None:
    """The list of the server may be a second older than the event."""
    picture = list_pictures.listed()
    event = msgspec.structs.replace(list_pictures.ENDINGS[1], seq=9_999, at=NOW, request="7e0c44")
    later = dataclasses.replace(picture, events=(*picture.events, event))
    assert [item.state for item in every_item(later) if item.id == "7e0c44"] == ["ended"]
    assert counts(every_item(later)).running == 11


def test_what_ended_before_the_console_came_is_listed_with_its_figures() -> None:
    picture = list_pictures.listed()
    found = {item.id: item for item in every_item(picture)}
    assert (found["7f0000"].row, found["7f0000"].event) == (list_pictures.ENDED[1], None)
    both = found["7f0002"]
    assert (both.row, both.event) == (list_pictures.ENDED[0], list_pictures.ENDINGS[1])
    look = Look(shown="ended")
    text = {row.split()[0]: row for row in map(plain, request_table(picture, look, 200, 20)) if row.split()}
    assert text["7f0000"].split()[1:] == [
        *("stop", "initech", "int", "r6", "1,204", "0", "412/512", "–", "14s", "0s", ".4", "29", "0"),
        *("moved", "1×", '"job-9"'),
    ]
    assert "by kim, 77 blk freed, preempted 1×" in text["7f0002"]
    assert text["7f0001"].split()[5:7] == ["–", "–"]  # the server told nothing of it but its end
    later = dataclasses.replace(picture, at=picture.at + 60.0)
    assert "7f0000" not in {item.id for item in every_item(later)}, "more than five minutes ago"
    timeline = [plain(row) for row in timeline_section(picture, look, "7f0002", 160, 20)]
    assert timeline[1].startswith(" ended: cancelled on r1  for 95s  prompt 4,400")


def test_without_a_list_the_rosters_and_the_held_ones_are_what_is_known() -> None:
    picture = pictures.incident(held=list_pictures.HELD)
    assert len([item for item in every_item(picture) if item.state != "ended"]) == 9 + 23 + 1


def test_what_a_request_waits_for_so_far_adds_up() -> None:
    parts = parts_of(WAITS, 47.4)
    assert parts.queue is not None
    assert abs(parts.queue - (47.4 - 0.31)) < 1e-9
    assert (parts.prefill, parts.send, parts.over, parts.largest) == (0.0, None, False, "queue")


def test_waiting_and_prefill_go_by_turns_before_the_first_token() -> None:
    entries = [
        TimelineEntry(kind="arrived", at_s=0.0),
        TimelineEntry(kind="routed", at_s=1.0, replica="r0"),
        TimelineEntry(kind="queued", at_s=1.0, replica="r0"),
        TimelineEntry(kind="admitted", at_s=3.0, replica="r0"),
        TimelineEntry(kind="prefill", at_s=4.0, tokens=5),
        TimelineEntry(kind="preempted", at_s=5.0, reason="recompute"),
        TimelineEntry(kind="resumed", at_s=9.0),
    ]
    timeline = Timeline(request="a", began_at=0.0, entries=entries, ttft_split_s=TtftSplit())
    parts = parts_of(timeline, 10.0)
    assert (parts.queue, parts.prefill) == (2.0 + 4.0, 2.0 + 1.0)
    assert [(stage.name, stage.to_s) for stage in stages(timeline, 10.0)] == [
        ("gateway", 1.0),
        ("waits", 3.0),
        ("prefills", 5.0),
        ("waits", 9.0),
        ("prefills", 10.0),
    ]


def test_a_life_after_its_first_token() -> None:
    found = stages(LIVED, 31.0)
    assert found[0] == Stage("gateway", 0.0, 0.031)
    assert [stage.name for stage in found] == [
        *("gateway", "waits", "prefills", "decodes"),
        *("waits", "prefills", "waits", "prefills"),
    ]
    swapped = [
        msgspec.structs.replace(entry, reason="swap") if entry.kind == "preempted" else entry
        for entry in LIVED.entries
    ]
    again = stages(msgspec.structs.replace(LIVED, entries=swapped[:14]), 20.0)
    assert [stage.name for stage in again[3:]] == ["decodes", "waits", "decodes"]


def test_the_bar_has_a_cell_for_the_smallest_part_and_never_more_than_its_width() -> None:
    for width in (12, 40, 119):
        row = bar_row(parts_of(LIVED, 31.0), width)
        text = "".join(span.text for span in row)
        assert sum(span.cells for span in row) == width
        assert set(text.strip()) <= set("gtQps")
        if width >= 40:
            assert set("gtQps") <= set(text)


def test_a_stall_is_told_from_a_slow_stream() -> None:
    slow = list_pictures.stream("a", [None, *[0.4] * 50])
    assert usual_s(slow) == 0.4
    assert {level(gap, usual_s(slow), stall_s(slow)) for gap in slow.gaps_s} == {0}
    quick = list_pictures.stream("a", [None, *[0.01] * 50, 0.03, 0.06, 0.3])
    assert [level(gap, usual_s(quick), stall_s(quick)) for gap in quick.gaps_s[-4:]] == [0, 1, 2, 3]
    assert level(None, 0.01, 0.25) == 0


def test_signs_stay_where_they_are_while_a_stream_grows() -> None:
    picture = list_pictures.streaming()
    before = shape_rows(picture, list_pictures.stream("a", [None, *[0.03] * 200]), 50, 10)
    after = shape_rows(picture, list_pictures.stream("a", [None, *[0.03] * 230]), 50, 10)
    assert after[: len(before) - 1] == before[:-1]


def test_what_happened_stands_before_the_token_that_came_after_it() -> None:
    picture = list_pictures.streaming()
    found = marks(picture, picture.streams["7f2a9e"])
    assert [(mark.place, mark.text.split()[0]) for mark in found] == [
        (61, "preempted"),
        (61, "admitted"),
        (102, "moved"),
    ]
    assert marks(picture, picture.streams["7efb20"]) == []


def test_an_estimate_only_where_there_is_a_rate() -> None:
    drain = Operation(id="a", kind="drain", target="r0", phase="running", started_at=0.0, done=3, total=9)
    assert eta_s(drain, 30.0) == 60.0
    for changes in ({"done": 0}, {"done": 9}, {"total": None}, {"phase": "succeeded"}, {"kind": "inject"}):
        assert eta_s(msgspec.structs.replace(drain, **changes), 30.0) is None  # pyright: ignore[reportArgumentType]


def test_operations_under_way_come_first_then_those_that_began_last() -> None:
    assert [each.id for each in operations(list_pictures.operating(), Look())] == [
        *("op-118", "op-121", "op-120", "op-119"),
    ]


def test_when_the_selected_request_is_gone_the_list_shows_its_top() -> None:
    picture, look = list_pictures.listed(), Look()
    cursor = look.cursor("requests", "requests")
    ids = [item.id for item in listed(picture, look)]
    cursor.select(ids, ids[-1])
    for width, height in ((80, 24), (40, 12)):
        text = "\n".join(plain(row) for row in request_table(picture, look, width, height - 4))
        assert "\n▸" in text
    assert picture.listing is not None
    gone = dataclasses.replace(picture, events=(), listing=dataclasses.replace(picture.listing, ended=()))
    text = "\n".join(plain(row) for row in request_table(gone, look, 80, 12))
    assert ids[0] in text
    assert "\n▸" not in text, "nothing else is selected in its place"


def test_a_request_that_decodes_does_not_wait_for_its_first_token() -> None:
    picture = list_pictures.listed()
    words: dict[str, str] = {}
    for item in every_item(picture):
        if item.row is not None and item.row.phase in ("decode", None):
            fresh = dataclasses.replace(picture, streams={})
            words[item.row.state] = "\n".join(plain(row) for row in panel_rows(fresh, item.id, 60, 6))
    assert "its tokens are being fetched" in words["running"]
    assert "waiting for its first token" not in words["running"]
    assert "waiting for its first token" in words["waiting"]


def test_the_moments_of_a_timeline_are_those_of_a_clock_that_fell_behind() -> None:
    """Asked for twice the wall's pace, it ran at half of it: 20 of its seconds took 40."""
    entries = [TimelineEntry(kind="arrived", at_s=0.0), TimelineEntry(kind="finished", at_s=20.0)]
    timeline = Timeline(request="a", began_at=100.0, entries=entries, ttft_split_s=TtftSplit(), last_at=140.0)
    simulation = Simulation(deployment="x", speed=2.0, achieved_speed=0.8)
    real = list_pictures.listed()
    assert real.fleet is not None
    simulated = msgspec.structs.replace(real.fleet, simulation=simulation)
    picture = dataclasses.replace(real, fleet=simulated)
    assert clock_pace(picture, timeline) == 0.5
    assert clock_pace(picture, msgspec.structs.replace(timeline, last_at=100.1)) == 0.8, "too short to tell"
    assert clock_pace(picture, None) == 0.8
    assert clock_pace(real, timeline) == 1.0, "nothing is simulated"


@pytest.mark.parametrize(
    ("looked_up", "why"),
    [
        (None, "from the events; the server's own timeline is not here"),
        (TimelinePicture("a"), "from the events; the server's own timeline is on its way"),
        (TimelinePicture("a", message="no route to host"), "from the events: no route to host"),
    ],
)
def test_what_stands_in_for_a_timeline_says_why(looked_up: TimelinePicture | None, why: str) -> None:
    event = Event(seq=1, at=pictures.NOW - 3, kind="admit", replica="r0", request="a")
    picture = dataclasses.replace(list_pictures.listed(), events=(event,), timeline=looked_up)
    rows = timeline_section(picture, Look(timeline="a"), "a", 100, 20)
    assert why in "\n".join(plain(row) for row in rows)


def test_the_same_number_of_two_servers_is_two_events() -> None:
    """A server that was started again counts from one again; the cursor stands on one row."""
    before, after = (Event(seq=7, at=pictures.NOW - ago_s, kind="replica", replica="r0") for ago_s in (9, 1))
    picture = dataclasses.replace(pictures.small(), events=(before, after))
    look = Look()
    look.focus["events"] = "events"
    ids = pane_ids(picture, look, "events", "events")
    assert len(set(ids)) == 2
    look.cursor("events", "events").select(ids, ids[1])
    rows = event_rows(picture, look, "events", 100, 10)
    assert sum(any(span.tone == "cursor" for span in row) for row in rows) == 1


def test_who_waits_for_a_slot_is_told_that_its_kv_is_not_what_lacks() -> None:
    item = next(each for each in listed(list_pictures.listed(), Look()) if each.state == "waiting")
    assert item.row is not None
    waits = msgspec.structs.replace(
        item.row, waiting_reason="slots", behind=None, needs_blocks=4, admissible_blocks=9, preemptions=0
    )
    assert why_cell(waits).text == "slots full, KV fits"
    short = msgspec.structs.replace(waits, admissible_blocks=1)
    assert why_cell(short).text == "slots full, short 3 blk"
