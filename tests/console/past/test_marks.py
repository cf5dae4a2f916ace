"""Marks say what changed and who did it: an operation once, what goes back when it goes back, and what
changed without any operation."""

from infer_console.past.changes import Change, Changes
from infer_console.past.marks import MAX_MARKS, Marks
from infer_engine.protocol import (
    Delta,
    Envelope,
    Fleet,
    FleetDelta,
    FleetSpec,
    Operation,
    Replica,
    ReplicaFrame,
    ReplicaGone,
    SnapshotBegin,
    SnapshotEnd,
    Totals,
)

AT = 1_000.0


def frame(replica: str, **limits: int) -> ReplicaFrame:
    status = Replica(id=replica, state="ready", limits=limits)
    return ReplicaFrame(replica=replica, step=1, at=AT, status=status)


def fleet(replicas: int, *, shed: bool = False) -> FleetDelta:
    spec = FleetSpec(replicas=replicas, shed=shed)
    return FleetDelta(fleet=Fleet(name="f", model="m", spec=spec), totals=Totals(replicas=replicas, ready=1))


def changes(*deltas: Delta, epoch: str = "e", of: Changes | None = None) -> list[Change]:
    compared = of or Changes()
    return [
        change
        for seq, delta in enumerate(deltas, 1)
        for change in compared.of(Envelope(epoch=epoch, seq=seq, prev=seq - 1, at=AT, delta=delta))
    ]


def snapshot(*frames: ReplicaFrame) -> tuple[Delta, ...]:
    return SnapshotBegin(server_version="", capabilities=[]), fleet(len(frames)), *frames, SnapshotEnd()


def operation(kind: str, **fields: object) -> Operation:
    base = {"id": "op-1", "target": "r0", "phase": "succeeded", "started_at": AT, "ended_at": AT}
    return Operation(**{"kind": kind, **base, **fields})  # type: ignore[arg-type]


def test_what_is_there_to_begin_with_is_no_change() -> None:
    assert changes(*snapshot(frame("r0", token_budget=512), frame("r1"))) == []


def test_limits_marks_shedding_and_replicas_that_change_are_told() -> None:
    begin = snapshot(frame("r0", token_budget=512, admit_limit=90), frame("r1"))
    after = (
        frame("r0", token_budget=256, admit_limit=80),
        frame("r2"),
        ReplicaGone(replica="r1"),
        fleet(3, shed=True),
        frame("r0"),  # it restarts and has not said
        frame("r0", token_budget=256, admit_limit=80),
    )
    assert changes(*begin, *after) == [
        Change("L", "r0", "token_budget 512 → 256"),
        Change("H", "r0", "admission mark 90 → 80"),
        Change("S", "r2", "came"),
        Change("S", "r1", "went"),
        Change("S", None, "replicas wanted 2 → 3"),
        Change("B", None, "batch is shed"),
    ]


def test_what_changed_while_nobody_looked_is_told_at_the_next_snapshot_of_the_same_server() -> None:
    compared = Changes()
    changes(*snapshot(frame("r0", max_running=8), frame("r1")), of=compared)
    anew = snapshot(frame("r0", max_running=4), frame("r2"))
    assert changes(*anew, of=compared) == [
        Change("L", "r0", "max_running 8 → 4"),
        Change("S", "r2", "came"),
        Change("S", "r1", "went"),
    ]
    assert changes(*snapshot(frame("r9", max_running=1)), of=compared, epoch="another") == []


def test_one_change_of_many_replicas_is_one_mark() -> None:
    marks = Marks()
    for number in range(5):
        marks.change(AT + number, Change("L", f"r{number}", "token_budget 512 → 256"))
    marks.change(AT + 60.0, Change("L", "r0", "token_budget 512 → 256"))
    assert [(mark.at, mark.sign, mark.kind, mark.text) for mark in marks.all()] == [
        (AT, "L", "setting", "5 replicas: token_budget 512 → 256"),
        (AT + 60.0, "L", "setting", "r0: token_budget 512 → 256"),
    ]


def test_what_an_operation_did_has_its_mark_alone_whichever_is_told_first() -> None:
    done = operation("limits", actor="kim", message="r0 token_budget 512 → 256")
    changed = Change("L", "r0", "token_budget 512 → 256")
    for first in (True, False):
        marks = Marks()
        if first:
            marks.operation("e", done)
            marks.change(AT + 1.0, changed)
        else:
            marks.change(AT + 1.0, changed)
            marks.operation("e", done)
        assert [mark.text for mark in marks.all()] == ["limits r0 by kim: r0 token_budget 512 → 256"]


def test_what_goes_back_is_marked_when_it_does() -> None:
    marks = Marks()
    pending = operation("headroom-revert", phase="running", ended_at=None)
    marks.operation("e", pending)
    assert marks.all() == ()
    ended = operation("headroom-revert", ended_at=AT + 600.0, message="r0 admit limit 80 → 90 blocks")
    marks.change(AT + 600.5, Change("H", "r0", "admission mark 80 → 90"))
    marks.operation("e", ended)
    (mark,) = marks.all()
    assert (mark.at, mark.sign) == (AT + 600.0, "H")
    assert mark.text == "headroom r0 went back: r0 admit limit 80 → 90 blocks"
    tenant = operation("tenant-revert", id="op-2", target="acme", ended_at=AT + 700.0)
    marks.operation("e", tenant)
    assert [mark.text for mark in marks.all()][1:] == ["tenant acme went back"]


def test_replicas_of_a_scaling_under_way_are_its_own() -> None:
    marks = Marks()
    marks.operation("e", operation("scale", target="4", phase="running", ended_at=None))
    marks.change(AT + 120.0, Change("S", "r3", "came"))
    assert [mark.sign for mark in marks.all()] == ["S"]
    marks.operation("e", operation("scale", target="4", ended_at=AT + 130.0))
    marks.change(AT + 200.0, Change("S", "r3", "went"))
    assert [mark.text for mark in marks.all()][1:] == ["r3: went"]


def test_a_thousand_replicas_that_change_one_by_one_stay_within_bounds() -> None:
    marks = Marks()
    for number in range(3_000):
        marks.change(AT + 60.0 * number, Change("L", f"r{number}", f"token_budget 1 → {number}"))
    assert len(marks.all()) <= MAX_MARKS
