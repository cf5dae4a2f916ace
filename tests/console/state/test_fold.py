"""Folding the watch stream: deltas add up to the whole, gaps are seen, pictures share what did not change."""

import itertools
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from infer_console.state.feed import MAX_EVENTS, MAX_OPERATIONS
from infer_console.state.fold import ConsoleState
from infer_console.state.picture import NO_OWNER, BlockMap, ReplicaPicture
from infer_console.state.series import INTERVAL_S, SAMPLES
from infer_console.view.events import event_row
from infer_console.view.row import plain
from infer_engine.control.history import HistoryKeeper
from infer_engine.protocol import (
    BlockRun,
    Delta,
    Envelope,
    Event,
    EventDelta,
    Fleet,
    FleetDelta,
    HeldDelta,
    Kv,
    Operation,
    OperationDelta,
    OperationPhase,
    Replica,
    ReplicaFrame,
    ReplicaGone,
    RequestRow,
    Reset,
    SnapshotBegin,
    SnapshotEnd,
    Status,
    TokenDelta,
    Totals,
)

IDS = ("a", "b", "c", "d", "e")
TOTAL = 12
BEGIN = SnapshotBegin(server_version="1", capabilities=["watch"])
FLEET = FleetDelta(fleet=Fleet(name="f", model="m"), totals=Totals(replicas=1, ready=1))


class Stream:
    """Numbers deltas as a server does, into one state."""

    def __init__(self, epoch: str = "e1") -> None:
        self.state = ConsoleState("unix:///x")
        self.epoch = epoch
        self.seq = 0
        self.prev = 0
        self.state.opened()

    def send(self, *deltas: Delta, now_s: float = 0.0) -> bool:
        for delta in deltas:
            self.seq += 3  # other connections take numbers too
            envelope = Envelope(epoch=self.epoch, seq=self.seq, prev=self.prev, at=0.0, delta=delta)
            self.prev = self.seq
            if not self.state.fold(envelope, now_s):
                return False
        return True

    def reopen(self, epoch: str | None = None) -> None:
        self.epoch = epoch or self.epoch
        self.prev = 0
        self.state.opened()

    def replica(self, name: str = "r0") -> ReplicaPicture:
        return self.state.picture(0.0, 0.0).replicas[name]


def status(**fields: object) -> Replica:
    return Replica(**{"id": "r0", "state": "ready", "kv": Kv(block_size=16, total=TOTAL), **fields})  # type: ignore[arg-type]


def frame(**fields: object) -> ReplicaFrame:
    return ReplicaFrame(**{"replica": "r0", "step": 1, "at": 1.0, **fields})  # type: ignore[arg-type]


def row(request: str, **fields: object) -> RequestRow:
    base = {
        "tenant": "t",
        "tier": "batch",
        "replica": "r0",
        "state": "running",
        "prompt_tokens": 1,
        "age_s": 0.0,
    }
    return RequestRow(**{"id": request, **base, **fields})  # type: ignore[arg-type]


def event(seq: int) -> EventDelta:
    return EventDelta(event=Event(seq=seq, at=float(seq), kind="admit"))


# --- deltas of whole frames add up


@st.composite
def wholes(draw: st.DrawFn) -> ReplicaFrame:
    """One replica as it may be at a moment: rows, their order, and every block."""
    order = draw(st.permutations(IDS))[: draw(st.integers(0, len(IDS)))]
    rows = [row(each, generated_tokens=draw(st.integers(0, 3))) for each in order]
    runs: list[BlockRun] = []
    first = 0
    while first < TOTAL:
        count = draw(st.integers(1, TOTAL - first))
        state = draw(st.sampled_from(("free", "cached", "used")))
        owners = (
            tuple(draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=2))) if state == "used" else ()
        )
        runs.append(BlockRun(first, count, state, owners, len(owners)))
        first += count
    return frame(step=draw(st.integers(0, 9)), status=status(), rows=rows, order=list(order), blocks=runs)


def difference(before: ReplicaFrame, after: ReplicaFrame) -> ReplicaFrame:
    """What a server would send: changed rows, those that left, a new order, runs that are not as before."""
    old = {each.id: each for each in before.rows or []}
    new = {each.id: each for each in after.rows or []}
    return frame(
        step=after.step,
        at=after.at,
        rows=[each for each in new.values() if old.get(each.id) != each] or None,
        removed=[each for each in old if each not in new],
        order=after.order if after.order != before.order else None,
        blocks=[run for run in after.blocks or [] if run not in (before.blocks or [])] or None,
    )


def blocks(shown: BlockMap | None) -> list[tuple[int, str | None, int]]:
    """Block by block: kind, owner by name, references. Owner numbers may differ between two maps."""
    assert shown is not None
    names = [None if owner == NO_OWNER else shown.owners[owner] for owner in shown.owner]
    return list(zip(shown.kinds, names, shown.refs, strict=True))


@settings(max_examples=60, deadline=None)
@given(st.lists(wholes(), min_size=1, max_size=6))
def test_deltas_of_a_sequence_of_whole_frames_give_the_last_whole_frame(frames: list[ReplicaFrame]) -> None:
    by_deltas, by_whole = Stream(), Stream()
    by_deltas.send(BEGIN, FLEET, frames[0], SnapshotEnd())
    for before, after in itertools.pairwise(frames):
        by_deltas.send(difference(before, after))
    by_whole.send(BEGIN, FLEET, frames[-1], SnapshotEnd())
    got, wanted = by_deltas.replica(), by_whole.replica()
    assert (got.rows, got.order, got.step, got.status) == (
        wanted.rows,
        wanted.order,
        wanted.step,
        wanted.status,
    )
    assert blocks(got.blocks) == blocks(wanted.blocks)


# --- snapshots


def test_a_new_snapshot_shows_only_when_it_is_whole() -> None:
    stream = Stream()
    stream.send(BEGIN, FLEET, frame(status=status(), rows=[row("a")], order=["a"]), SnapshotEnd())
    stream.reopen()
    stream.send(BEGIN, FLEET, frame(step=7, status=status(running=1)))
    assert stream.replica().order == ("a",)
    stream.send(SnapshotEnd())
    assert (stream.replica().order, stream.replica().step) == ((), 7)


def test_half_a_snapshot_of_a_broken_connection_is_forgotten() -> None:
    stream = Stream()
    stream.send(BEGIN, FLEET, frame(status=status()), SnapshotEnd())
    stream.reopen()
    stream.send(BEGIN, frame(replica="r9", status=status(id="r9")))
    stream.reopen()
    stream.send(BEGIN, FLEET, frame(status=status()), SnapshotEnd())
    assert list(stream.state.picture(0.0, 0.0).replicas) == ["r0"]


def test_a_reset_takes_the_snapshot_after_it() -> None:
    stream = Stream()
    stream.send(BEGIN, FLEET, frame(status=status()), SnapshotEnd())
    stream.send(Reset(why="slow", dropped=9), BEGIN, FLEET, frame(step=5, status=status()), SnapshotEnd())
    assert stream.replica().step == 5
    assert stream.state.picture(0.0, 0.0).link.resyncs == 1


def test_a_replica_is_shown_only_once_its_status_is_known_and_goes_when_it_is_gone() -> None:
    stream = Stream()
    stream.send(BEGIN, FLEET, SnapshotEnd(), frame(rows=[row("a")], order=["a"]))
    assert stream.state.picture(0.0, 0.0).replicas == {}
    stream.send(frame(status=status()))
    assert stream.replica().order == ("a",)
    stream.send(ReplicaGone(replica="r0"))
    assert stream.state.picture(0.0, 0.0).replicas == {}


def test_replicas_come_in_the_order_that_people_count() -> None:
    stream = Stream()
    names = ["r10", "r2", "gpu-b", "r1"]
    stream.send(BEGIN, *(frame(replica=name, status=status(id=name)) for name in names), SnapshotEnd())
    assert list(stream.state.picture(0.0, 0.0).replicas) == ["gpu-b", "r1", "r2", "r10"]


def test_an_order_that_names_a_row_that_is_not_there_yet_waits_for_it() -> None:
    stream = Stream()
    stream.send(BEGIN, frame(status=status(), rows=[row("a")], order=["b", "a"]), SnapshotEnd())
    assert stream.replica().order == ("a",)
    stream.send(frame(rows=[row("b")]))
    assert stream.replica().order == ("b", "a")


def test_held_requests_are_the_last_list() -> None:
    stream = Stream()
    stream.send(BEGIN, HeldDelta(rows=[row("a"), row("b")]), SnapshotEnd(), HeldDelta(rows=[row("b")]))
    assert [each.id for each in stream.state.picture(0.0, 0.0).held] == ["b"]


# --- gaps


def test_a_missing_message_is_seen_and_nothing_is_folded() -> None:
    stream = Stream()
    stream.send(BEGIN, FLEET, frame(status=status()), SnapshotEnd())
    stream.prev += 1
    assert not stream.send(frame(step=9, status=status()))
    assert stream.replica().step == 1
    assert stream.state.picture(0.0, 0.0).link.resyncs == 1


def test_another_epoch_on_the_same_connection_is_a_gap() -> None:
    stream = Stream()
    stream.send(BEGIN, FLEET, SnapshotEnd())
    stream.epoch = "e2"
    assert not stream.send(FLEET)


def test_the_first_message_of_a_connection_must_say_that_it_is_the_first() -> None:
    stream = Stream()
    stream.prev = 3
    assert not stream.send(BEGIN)


# --- feeds


def test_events_told_again_by_a_snapshot_are_kept_once_and_a_restarted_server_counts_anew() -> None:
    stream = Stream()
    stream.send(BEGIN, event(1), event(2), SnapshotEnd(), event(3))
    stream.reopen()
    stream.send(BEGIN, event(2), event(3), event(4), SnapshotEnd())
    stream.reopen("e2")
    stream.send(BEGIN, event(1), SnapshotEnd())
    assert [each.seq for each in stream.state.picture(0.0, 0.0).events] == [1, 2, 3, 4, 1]


def test_a_restarted_server_leaves_no_operation_under_way_and_its_ids_begin_anew() -> None:
    def drain(number: int, phase: OperationPhase) -> OperationDelta:
        return OperationDelta(
            operation=Operation(
                id=f"op-{number}", kind="drain", target="r0", phase=phase, started_at=1.0, deadline_at=99.0
            )
        )

    stream = Stream()
    stream.send(BEGIN, drain(1, "running"), drain(2, "succeeded"), SnapshotEnd())
    stream.reopen()
    stream.send(BEGIN, drain(1, "running"), drain(2, "succeeded"), SnapshotEnd())
    assert [each.phase for each in stream.state.picture(0.0, 0.0).operations] == ["running", "succeeded"]
    stream.reopen("e2")
    stream.send(BEGIN, SnapshotEnd(), drain(1, "pending"))
    shown = {each.id: each for each in stream.state.picture(0.0, 0.0).operations}
    assert {name: each.phase for name, each in shown.items()} == {
        "op-1": "pending",
        "op-1@e1": "unknown",
        "op-2@e1": "succeeded",
    }
    lost = shown["op-1@e1"]
    assert lost.ended_at is not None
    assert lost.deadline_at is None
    assert "restarted" in lost.message


def test_feeds_are_bounded_and_running_operations_are_the_last_to_go() -> None:
    stream = Stream()
    stream.send(BEGIN, SnapshotEnd(), *(event(seq) for seq in range(1, MAX_EVENTS + 11)))
    for number in range(MAX_OPERATIONS + 5):
        phase = "running" if number < 3 else "succeeded"
        operation = Operation(
            id=f"op-{number}", kind="drain", target="r0", phase=phase, started_at=float(number)
        )
        stream.send(OperationDelta(operation=operation))
    picture = stream.state.picture(0.0, 0.0)
    assert len(picture.events) == MAX_EVENTS
    assert picture.events[0].seq == 11
    assert len(picture.operations) == MAX_OPERATIONS
    assert [each.id for each in picture.operations[:4]] == ["op-0", "op-1", "op-2", "op-8"]


# --- sharing


def test_what_did_not_change_is_the_same_object() -> None:
    stream = Stream()
    two = [frame(replica=name, status=status(id=name)) for name in ("r0", "r1")]
    stream.send(BEGIN, FLEET, *two, event(1), SnapshotEnd())
    before = stream.state.picture(0.0, 0.0)
    stream.send(frame(step=2))
    after = stream.state.picture(1.0, 1.0)
    assert after.replicas["r1"] is before.replicas["r1"]
    assert after.replicas["r0"] is not before.replicas["r0"]
    assert after.replicas["r0"].rows is before.replicas["r0"].rows
    assert after.events is before.events
    assert after.history is before.history


def test_pictures_handed_out_never_change() -> None:
    stream = Stream()
    run = BlockRun(0, 2, "used", ("a",), 1)
    stream.send(BEGIN, frame(status=status(), rows=[row("a")], order=["a"], blocks=[run]), SnapshotEnd())
    before = stream.replica()
    stream.send(frame(removed=["a"], order=[], blocks=[BlockRun(0, 2, "free")]))
    assert before.order == ("a",)
    assert list(before.rows) == ["a"]
    assert before.blocks is not None
    assert before.blocks.owner[:2] == array("H", [0, 0])
    assert stream.replica().order == ()


# --- time


def test_samples_are_taken_at_their_interval_and_are_unknown_while_nothing_is_heard() -> None:
    stream = Stream()
    stream.send(BEGIN, FLEET, frame(status=status(running=4)), SnapshotEnd(), now_s=0.0)
    assert stream.state.sample(0.0)
    assert not stream.state.sample(INTERVAL_S / 2)
    assert stream.state.sample(INTERVAL_S)
    assert stream.state.sample(4 * INTERVAL_S)  # the link went stale, and samples were missed
    running = stream.replica().history["running"]
    assert (running.interval_s, list(running.values)) == (INTERVAL_S, [4, 4, None, None, None])


def test_what_the_servers_last_step_does_not_have_yet_is_not_drawn() -> None:
    at = 1_000.0
    ring = HistoryKeeper(INTERVAL_S, lambda: at)
    served = Status(
        fleet=FLEET.fleet, replicas=[status(running=5)], totals=Totals(replicas=1, ready=1, running=5)
    )
    for _ in range(13):
        ring.sample(served)
        at += INTERVAL_S
    now_at = at - INTERVAL_S
    history = ring.document(1_800.0, 20.0, ["r0"], simulated=False)
    assert history.until_at > now_at
    stream = Stream()
    stream.state.look_back(history, now_at=now_at)
    stream.send(BEGIN, FLEET, frame(status=status(running=5), rows=[], order=[]), SnapshotEnd())
    for series in (
        stream.state.picture(0.0, 0.0).history["running"],
        stream.replica().history["running"],
    ):
        assert series.values == (5.0,) * 13  # and nothing of the time before the server began
        assert series.taken == 13


def test_histories_are_bounded_however_long_nobody_sampled() -> None:
    stream = Stream()
    stream.send(BEGIN, FLEET, frame(status=status()), SnapshotEnd())
    stream.state.sample(0.0)
    stream.state.sample(INTERVAL_S * SAMPLES * 10)
    history = stream.state.picture(0.0, 0.0).history
    assert {len(series.values) for series in history.values()} == {SAMPLES}


@pytest.mark.parametrize(("silence_s", "state"), [(2.9, "live"), (3.1, "stale")])
def test_a_silent_link_makes_the_view_stale(silence_s: float, state: str) -> None:
    stream = Stream()
    stream.send(BEGIN, FLEET, SnapshotEnd(), now_s=10.0)
    link = stream.state.picture(0.0, 10.0 + silence_s).link
    assert (link.state, link.age_s) == (state, pytest.approx(silence_s))


def test_a_link_that_was_live_is_lost_and_counts_its_return() -> None:
    stream = Stream()
    link = stream.state.link
    link.connecting("no such file")
    assert link.picture(0.0).state == "connecting"
    stream.send(BEGIN, SnapshotEnd())
    link.connecting("refused")
    assert (link.picture(0.0).state, link.picture(0.0).message) == ("lost", "refused")
    stream.reopen()
    stream.send(BEGIN, SnapshotEnd())
    assert (link.picture(0.0).state, link.picture(0.0).reconnects) == ("live", 1)


def test_a_stream_that_goes_on_where_it_broke_is_live_without_a_snapshot() -> None:
    stream = Stream()
    link = stream.state.link
    stream.send(BEGIN, FLEET, SnapshotEnd())
    link.connecting("silent for 6 s")
    assert stream.send(event(1), now_s=70.0)
    assert (link.picture(70.0).state, link.picture(70.0).reconnects) == ("live", 1)
    assert link.picture(70.0).message == ""


def test_half_of_a_snapshot_is_not_live() -> None:
    stream = Stream()
    stream.send(BEGIN, FLEET, SnapshotEnd())
    stream.state.link.connecting("refused")
    stream.reopen()
    stream.send(BEGIN, FLEET)
    assert stream.state.link.state == "lost"


def test_bytes_are_a_rate_over_the_last_seconds() -> None:
    stream = Stream()
    stream.send(BEGIN, SnapshotEnd())
    for second in range(5):
        stream.state.link.received(1_000, float(second))
    assert stream.state.link.picture(4.0).bytes_per_s == 1_000
    assert stream.state.link.picture(60.0).bytes_per_s == 0


# --- streams


def tokens(index: int, text: str, count: int = 1, **fields: object) -> TokenDelta:
    return TokenDelta(request="a", index=index, text=text, at=0.0, tokens=count, **fields)  # type: ignore[arg-type]


def test_only_watched_streams_are_kept_and_at_most_sixteen() -> None:
    state = ConsoleState("unix:///x")
    kept = state.watch_streams([f"q{number}" for number in range(20)] + ["q0"])
    assert len(kept) == 16
    state.watch_streams(["a"])
    state.tokens(tokens(0, "hel"))
    state.tokens(TokenDelta(request="b", index=0, text="no", at=0.0))
    assert {name: each.text for name, each in state.picture(0.0, 0.0).streams.items()} == {"a": "hel"}


def test_a_tap_opened_anew_tells_the_text_again_without_doubling_it() -> None:
    state = ConsoleState("unix:///x")
    state.watch_streams(["a"])
    assert state.tap_opened() == ("a",)
    state.tokens(tokens(0, "one "))
    state.tokens(tokens(1, "two "))
    state.tap_opened()
    state.tokens(tokens(0, "one two ", 2))
    state.tokens(tokens(2, "three", finish_reason="stop"))
    shown = state.picture(0.0, 0.0).streams["a"]
    assert (shown.text, shown.tokens, shown.finish_reason) == ("one two three", 3, "stop")
    assert state.tap_opened() == ()  # nothing left to ask for


def test_the_end_of_a_forgotten_request_keeps_its_text() -> None:
    state = ConsoleState("unix:///x")
    state.watch_streams(["a"])
    state.tap_opened()
    state.tokens(tokens(0, "all there is"))
    state.tap_opened()
    state.tokens(tokens(1, "", 0, finish_reason="length"))
    shown = state.picture(0.0, 0.0).streams["a"]
    assert (shown.text, shown.finish_reason) == ("all there is", "length")


@pytest.mark.parametrize(
    "over",
    [
        {"status": status(incarnation=2, state="starting")},
        {"status": status(state="restarting"), "blocks": []},
    ],
)
def test_the_blocks_of_a_dead_replica_are_forgotten(over: dict[str, object]) -> None:
    stream = Stream()
    used = [BlockRun(0, TOTAL, "used", ("a",), 1)]
    assert stream.send(BEGIN, FLEET, frame(status=status(incarnation=1), blocks=used), SnapshotEnd())
    assert stream.replica().blocks is not None
    assert stream.send(frame(**over))
    assert stream.replica().blocks is None
    free = [BlockRun(0, TOTAL, "free")]
    assert stream.send(frame(status=status(incarnation=2), blocks=free))
    blocks = stream.replica().blocks
    assert blocks is not None
    assert len(blocks.kinds) == TOTAL


def test_that_the_link_went_away_and_came_back_are_events() -> None:
    stream = Stream()
    stream.send(BEGIN, FLEET, SnapshotEnd())
    assert stream.state.picture(100.0, 1.0).events == ()
    stream.state.link.connecting("refused")
    stream.state.link.connecting("refused again")
    lost = stream.state.picture(101.0, 2.0).events
    assert [(each.at, each.reason, each.message) for each in lost] == [(101.0, "link lost", "refused")]
    stream.reopen()
    stream.send(BEGIN, FLEET, SnapshotEnd())
    both = stream.state.picture(105.0, 6.0).events
    assert [(each.at, each.reason) for each in both] == [(101.0, "link lost"), (105.0, "link back")]
    assert "LINK" in plain(event_row(both[0], 100))
    assert "link lost, refused" in plain(event_row(both[0], 100))
