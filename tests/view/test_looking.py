"""Cursors, orders, letters, columns and heights."""

import msgspec
from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.view.layout import Want, allot, rule, window
from infer_console.view.look import Cursor, Look, Size
from infer_console.view.order import event_id, fleet_order, pane_ids, queue, roster
from infer_console.view.owners import LETTERS, OwnerLetters
from infer_console.view.replica_screen import replica_screen
from infer_console.view.row import Line, overlay, plain
from infer_console.view.streams import StreamSlots, grid
from infer_console.view.table import Cell, Column, fit_columns
from support import pictures


def test_cursor_follows_the_id_not_the_row() -> None:
    cursor = Cursor()
    cursor.move(["a", "b", "c"], 1)
    assert cursor.id == "b"
    cursor.follow(["c", "a", "b"])
    assert (cursor.id, cursor.index) == ("b", 2)


def test_cursor_does_not_slide_onto_a_neighbour() -> None:
    cursor = Cursor()
    cursor.move(["a", "b", "c"], 1)
    cursor.follow(["a", "c"])
    assert cursor.id is None
    cursor.move(["a", "c"], 1)
    assert cursor.id == "c"


def test_cursor_that_nobody_moved_is_on_the_first() -> None:
    cursor = Cursor()
    cursor.follow(["a", "b"])
    cursor.follow(["x", "a"])
    assert cursor.id == "x"
    cursor.follow([])
    assert cursor.id is None


def test_cursor_hidden_by_a_filter_stands_on_the_nearest_and_comes_back() -> None:
    every = ["a", "b", "c", "d", "e"]
    cursor = Cursor()
    cursor.move(every, 1)
    cursor.follow(["a", "d", "e"], every)
    assert (cursor.id, cursor.index) == ("a", 0)
    cursor.follow(["d", "e"], every)
    assert cursor.id == "d"
    cursor.follow([], every)
    assert cursor.id is None
    cursor.follow(["e"], every)
    assert cursor.id == "e"
    cursor.follow(every, every)
    assert cursor.id == "b"
    cursor.follow(["a", "d"], every)
    cursor.move(["a", "d"], 1)
    cursor.follow(every, every)
    assert cursor.id == "d", "moved by the operator: it stays"
    cursor.follow(["a"], every)
    cursor.follow([], ["b", "c"])
    assert cursor.id is None, "what has left is nobody's stand-in"


def test_cursor_stops_at_the_ends() -> None:
    cursor = Cursor()
    cursor.move(["a", "b"], 100)
    assert cursor.id == "b"
    cursor.move(["a", "b"], -100)
    assert cursor.id == "a"
    cursor.move([], 1)
    assert not cursor.select(["a"], "z")


def order_of(picture: Picture, look: Look) -> list[str]:
    return [replica.status.id for replica in fleet_order(picture, look)]


def test_fleet_is_ordered_by_how_bad_it_is_and_then_by_id() -> None:
    picture = pictures.incident()
    assert order_of(picture, Look()) == ["r3", "r2", "r5", "r7", "r0", "r1", "r4", "r6"]
    assert order_of(picture, Look(fleet_sort="waiting"))[:3] == ["r2", "r5", "r4"]
    assert order_of(picture, Look(fleet_sort="ttft"))[-1] in ("r3", "r7")
    assert order_of(picture, Look(fleet_sort="kv"))[-1] == "r7"
    assert order_of(picture, Look(fleet_sort="id")) == [f"r{number}" for number in range(8)]


def test_r10_comes_after_r9() -> None:
    statuses = [pictures.replica(f"r{number}", 0, 0, pictures.kv(0, 0)) for number in (10, 9, 1)]
    picture = pictures.incident(replicas={each.id: ReplicaPicture(each) for each in statuses}, alarms=())
    assert order_of(picture, Look()) == ["r1", "r9", "r10"]


def test_roster_orders_and_filters() -> None:
    replica = pictures.incident().replicas["r2"]
    assert [row.id for row in roster(replica, Look())] == [row.id for row in pictures.ROSTER]
    assert roster(replica, Look(roster_sort="blocks"))[0].id == "7e0b12"
    assert roster(replica, Look(roster_sort="tenant"))[0].tenant == "acme"
    assert {row.tenant for row in roster(replica, Look(filter="GLOB"))} == {"globex"}


def test_queue_keeps_its_places_under_a_filter() -> None:
    replica = pictures.incident().replicas["r2"]
    assert [place for place, _ in queue(replica, Look(filter="behind"))] == [3, 4, 19, 20, 21, 22, 23]


def test_events_are_newest_first_and_of_the_replica() -> None:
    picture = pictures.incident()
    assert pane_ids(picture, Look(), "fleet", "events")[0] == event_id(picture.events[-1])
    of_r6 = [event_id(event) for event in picture.events if event.seq == 8]
    assert pane_ids(picture, Look(replica="r6"), "replica", "events") == of_r6


def test_letters_stay_while_a_request_runs() -> None:
    letters = OwnerLetters()
    letters.update("r0", ["a", "b", "c"])
    kept = letters.mark("r0", "c")
    letters.update("r0", ["c", "d"])
    assert letters.mark("r0", "c") == kept
    assert letters.mark("r0", "d").letter == "D"
    assert letters.mark("r0", "a").letter == "+"
    letters.update("r0", ["d"], ["c", "d"])
    assert letters.mark("r0", "c") == kept, "preempted, but still seen"
    letters.update("r0", [f"n{number}" for number in range(len(LETTERS) + 5)])
    marks = {letters.mark("r0", f"n{number}").letter for number in range(len(LETTERS))}
    assert len(marks) == len(LETTERS)


def test_small_letters_come_last_and_pairs_after_them() -> None:
    letters = OwnerLetters()
    owners = [f"n{number}" for number in range(28)]
    letters.update("r0", owners)
    shown = [letters.mark("r0", owner).letter for owner in owners]
    assert "".join(shown[:26]).isupper()
    assert "".join(shown[26:]).islower()
    letters.update("r0", owners[5:])
    letters.update("r0", [*owners[5:], "x", "y"])
    fresh = {letters.mark("r0", owner).letter for owner in ("x", "y")}
    assert fresh <= set("ABCDE")
    assert not {letter.lower() for letter in fresh} & set(shown[26:])


def test_letters_outlive_a_roster_that_is_not_there() -> None:
    picture, look = pictures.incident(), Look(replica="r2")
    replica_screen(picture, look, Size(120, 36), pictures.NOW)
    mark = look.owners.mark("r2", "7e0b12")
    bare = ReplicaPicture(picture.replicas["r2"].status)
    replica_screen(pictures.incident(replicas={"r2": bare}), look, Size(120, 36), pictures.NOW)
    assert look.owners.mark("r2", "7e0b12") == mark


def test_columns_go_by_need() -> None:
    columns: list[Column[str]] = [
        Column("A", 4, lambda item: Cell("a")),
        Column("B", 4, lambda item: Cell("b"), need=2),
        Column("C", 4, lambda item: Cell("c"), need=1, grows=6),
    ]
    assert [(fitted.column.head, fitted.width) for fitted in fit_columns(columns, 30)] == [
        ("A", 4),
        ("B", 4),
        ("C", 10),
    ]
    assert [fitted.column.head for fitted in fit_columns(columns, 10)] == ["A", "C"]
    assert [fitted.column.head for fitted in fit_columns(columns, 3)] == ["A"]


def test_heights_are_given_by_rank() -> None:
    wants = [Want("head", 1, 1, 0), Want("list", 3, 10, 1), Want("rest", 2, 99, 9)]
    assert allot(20, wants) == {"head": 1, "list": 10, "rest": 9}
    assert allot(5, wants) == {"head": 1, "list": 4, "rest": 0}
    assert allot(0, wants) == {"head": 0, "list": 0, "rest": 0}


def test_window_keeps_the_cursor_in_sight() -> None:
    assert window(5, 10, 4) == range(5)
    assert window(100, 10, 0) == range(10)
    assert 50 in window(100, 10, 50)
    assert window(100, 10, 99) == range(90, 100)
    assert window(3, 0, 0) == range(0)


def test_focused_pane_is_marked_by_a_sign() -> None:
    assert "▸ROSTER" in plain(rule(40, "ROSTER", focused=True))
    assert "▸" not in plain(rule(40, "ROSTER"))


def test_a_box_lies_over_the_middle() -> None:
    base = [Line(10).put("0123456789").row() for _ in range(5)]
    top = [Line(4, "dialog").put("boxy").row()]
    assert [plain(row) for row in overlay(base, top, 10)] == [
        "0123456789",
        "0123456789",
        "012boxy789",
        "0123456789",
        "0123456789",
    ]


def test_streams_stay_in_their_panels() -> None:
    slots = StreamSlots()
    assert slots.update(["a", "b", "c"], [], 2) == ["a", "b"]
    assert slots.update(["b", "c"], [], 2) == ["c", "b"]
    assert slots.update(["b"], [], 2) == ["c", "b"], "an ended one stays until its place is needed"
    assert slots.update(["b", "d"], ["x"], 2) == ["x"]


def test_grid_of_panels() -> None:
    assert grid(1, 120, 33) == (1, 1)
    assert grid(2, 120, 33) == (2, 1)
    assert grid(6, 120, 33) == (2, 3)
    assert grid(4, 80, 22) == (2, 2)
    assert grid(3, 30, 22) == (1, 3)


def test_a_request_that_left_is_not_selected() -> None:
    picture = pictures.incident()
    look = Look(replica="r2")
    cursor = look.cursor("replica", "roster")
    cursor.move(pane_ids(picture, look, "replica", "roster"), 1)
    assert cursor.id == "7e0c44"
    replica = picture.replicas["r2"]
    gone = msgspec.structs.replace(replica.rows["7e0c44"], state="finished")
    changed = ReplicaPicture(replica.status, replica.rows | {"7e0c44": gone}, replica.order)
    cursor.follow([row.id for row in roster(changed, look)])
    assert cursor.id is None
