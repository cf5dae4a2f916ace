"""A watcher that applies deltas has what a watcher who asks for everything has."""

from infer_engine.control.frames import Detail, SentReplica
from infer_engine.protocol import BlockRun, Kv, Replica, ReplicaFrame, RequestRow
from msgspec import structs
from support.fleets import running_fleet, until


def row(request: str, **changes: object) -> RequestRow:
    base = RequestRow(
        id=request, tenant="t", tier="interactive", replica="r0", state="running", prompt_tokens=4, age_s=1.0
    )
    return structs.replace(base, **changes)


def frame(step: int, rows: list[RequestRow], blocks: list[BlockRun] | None, **status: object) -> ReplicaFrame:
    base = Replica(id="r0", state="ready", kv=Kv(total=8))
    return ReplicaFrame(
        replica="r0",
        step=step,
        at=float(step),
        status=structs.replace(base, **status),
        rows=rows,
        order=[each.id for each in rows],
        blocks=blocks,
    )


FREE = BlockRun(0, 8, "free")
OWNED = [BlockRun(0, 2, "used", ("a",), 1), BlockRun(2, 6, "free")]


def test_the_first_frame_is_whole() -> None:
    sent = SentReplica()
    whole = frame(1, [row("a"), row("b")], OWNED)
    assert sent.delta(whole, Detail(), 0.0) == whole


def test_a_first_frame_without_requests_still_says_so() -> None:
    delta = SentReplica().delta(frame(1, [], [FREE]), Detail(), 0.0)
    assert delta is not None
    assert (delta.rows, delta.order) == ([], [])


def test_nothing_new_is_no_message() -> None:
    sent = SentReplica()
    sent.delta(frame(1, [row("a")], OWNED), Detail(), 0.0)
    assert sent.delta(frame(2, [row("a")], OWNED), Detail(), 0.1) is None


def test_only_what_changed_is_sent() -> None:
    sent = SentReplica()
    sent.delta(frame(1, [row("a"), row("b")], OWNED), Detail(), 0.0)
    now = [row("a", generated_tokens=1), row("c")]
    grown = [BlockRun(0, 3, "used", ("a",), 1), BlockRun(3, 5, "free")]
    delta = sent.delta(frame(2, now, grown), Detail(), 0.1)
    assert delta is not None
    assert delta.rows == now
    assert delta.removed == ["b"]
    assert delta.order == ["a", "c"]
    assert delta.blocks == grown
    assert delta.status is None


def test_an_unchanged_run_is_not_repeated() -> None:
    sent = SentReplica()
    a, b = BlockRun(0, 2, "used", ("a",), 1), BlockRun(2, 2, "used", ("b",), 1)
    sent.delta(frame(1, [], [a, b, BlockRun(4, 4, "free")]), Detail(), 0.0)
    freed = BlockRun(2, 6, "free")
    delta = sent.delta(frame(2, [], [a, freed]), Detail(), 0.1)
    assert delta is not None
    assert delta.blocks == [freed]


def test_ages_alone_are_sent_once_a_second() -> None:
    sent = SentReplica()
    sent.delta(frame(1, [row("a")], None, step_age_s=0.1), Detail(), 100.0)
    older = frame(1, [row("a", age_s=1.5)], None, step_age_s=0.6)
    assert sent.delta(older, Detail(), 100.5) is None
    delta = sent.delta(older, Detail(), 101.0)
    assert delta is not None
    assert delta.rows == older.rows
    assert delta.status == older.status


def test_a_change_brings_the_newest_age_along() -> None:
    sent = SentReplica()
    sent.delta(frame(1, [row("a")], None), Detail(), 100.0)
    changed = row("a", age_s=1.2, generated_tokens=3)
    delta = sent.delta(frame(2, [changed], None), Detail(), 100.2)
    assert delta is not None
    assert delta.rows == [changed]


def test_ages_of_a_long_queue_are_sent_less_often() -> None:
    sent = SentReplica()
    many = [row(f"r{n}", state="waiting") for n in range(600)]
    sent.delta(frame(1, many, None), Detail(), 100.0)
    older = [structs.replace(each, age_s=9.0) for each in many]
    assert sent.delta(frame(1, older, None), Detail(), 102.9) is None
    assert sent.delta(frame(1, older, None), Detail(), 103.0) is not None


def test_parts_that_were_not_asked_for_stay_out() -> None:
    delta = SentReplica().delta(frame(1, [row("a")], OWNED), Detail(roster=False, blocks=False), 0.0)
    assert delta is not None
    assert (delta.rows, delta.order, delta.blocks) == (None, None, None)
    assert delta.status is not None


def test_blocks_that_are_not_known_yet_come_whole_later() -> None:
    sent = SentReplica()
    sent.delta(frame(1, [], None), Detail(), 0.0)
    delta = sent.delta(frame(2, [], OWNED), Detail(), 0.1)
    assert delta is not None
    assert delta.blocks == OWNED


def test_deltas_add_up_to_the_whole() -> None:
    """Apply every delta to a map of single blocks, as a console does."""
    sent = SentReplica()
    painted: dict[int, tuple[str, tuple[str, ...]]] = {}
    rows: dict[str, RequestRow] = {}
    states = [
        ([row("a")], OWNED),
        ([row("a", kv_blocks=3), row("b")], [BlockRun(0, 3, "used", ("a",)), BlockRun(3, 5, "used", ("b",))]),
        ([row("b")], [BlockRun(0, 3, "free"), BlockRun(3, 5, "used", ("b",))]),
        ([], [FREE]),
    ]
    for step, (now, blocks) in enumerate(states):
        delta = sent.delta(frame(step, now, blocks), Detail(), step * 0.1)
        assert delta is not None
        for gone in delta.removed:
            del rows[gone]
        rows.update((each.id, each) for each in delta.rows or [])
        for run in delta.blocks or []:
            painted.update((n, (run.state, run.owners)) for n in range(run.first, run.first + run.count))
        assert list(rows.values()) == now
        whole = {
            n: (run.state, run.owners) for run in blocks for n in range(run.first, run.first + run.count)
        }
        assert painted == whole


def test_the_blocks_of_a_dead_replica_are_taken_back() -> None:
    sent = SentReplica()
    sent.delta(frame(1, [], OWNED, kv=Kv(total=8, used=2)), Detail(), 0.0)
    unobserved = sent.delta(frame(2, [row("a")], None, kv=Kv(total=8, used=2)), Detail(), 0.1)
    assert unobserved is not None
    assert unobserved.blocks is None, "still the newest that is known"
    dead = sent.delta(frame(0, [], None, state="restarting"), Detail(), 0.2)
    assert dead is not None
    assert dead.blocks == []
    again = sent.delta(frame(0, [], None, state="restarting", error="x"), Detail(), 0.3)
    assert again is not None
    assert again.blocks is None, "said once"
    back = sent.delta(frame(1, [], OWNED, incarnation=2, kv=Kv(total=8, used=2)), Detail(), 0.4)
    assert back is not None
    assert back.blocks == OWNED


def test_the_blocks_of_a_new_life_come_whole() -> None:
    sent = SentReplica()
    sent.delta(frame(9, [], OWNED), Detail(), 0.0)
    delta = sent.delta(frame(1, [], OWNED, incarnation=1), Detail(), 0.1)
    assert delta is not None
    assert delta.blocks == OWNED


async def test_a_replica_that_dies_takes_its_map_along() -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        observer = bench.fleet.observe("r0", 1_000.0, blocks=True)
        sent = SentReplica()
        bench.submit(4, 55)
        await bench.step_until("r0", lambda: bench.fleet.frame("r0").blocks and bench.fleet.frame("r0").rows)
        first = sent.delta(bench.fleet.frame("r0"), Detail(), 0.0)
        assert first is not None
        assert first.blocks
        bench.launcher.load_gate.clear()
        bench.launcher.now("r0").kill()
        await until(lambda: bench.fleet.replica("r0").state == "restarting")
        dead = sent.delta(bench.fleet.frame("r0"), Detail(), 0.1)
        assert dead is not None
        assert (dead.blocks, dead.order) == ([], [])
        observer.close()
