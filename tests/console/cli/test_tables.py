"""What verbs print for people, of documents made up here."""

import pytest
from infer_console.cli import past, tables
from infer_console.view.diff import Fact, Side, diff_rows
from infer_console.view.row import plain
from infer_engine.protocol import BlockRun, Blocks, Event, Timeline, TtftSplit


def test_neighbouring_blocks_that_look_alike_are_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        BlockRun(0, 2, "used", ("a",), 1),
        BlockRun(2, 1, "used", ("a", "b"), 2),
        BlockRun(3, 4, "cached", evict_quarter=1),
        BlockRun(7, 4, "cached", evict_quarter=2),
        BlockRun(11, 1, "free"),
        BlockRun(12, 4, "free"),
    ]
    tables.print_blocks(Blocks(replica="r0", block_size=16, total=16, blocks=runs))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:3] for row in rows] == [
        ["0-1", "2", "used"],
        ["2", "1", "used"],
        ["3-10", "8", "cached"],
        ["11-15", "5", "free"],
    ]


def test_the_total_of_test_traffic_is_the_sum_of_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(split: TtftSplit) -> str:
        past.print_timeline(Timeline(request="a", began_at=0.0, entries=[], ttft_split_s=split))
        return capsys.readouterr().out.splitlines()[-1]

    assert printed(TtftSplit(queue=0.069, prefill=0.33)) == (
        "TTFT 0.399 s = gateway – + tokenize – + queue 0.069 + prefill 0.330 + send –"
    )
    assert printed(TtftSplit(queue=0.069)).startswith("TTFT – s"), "it has no first token"


def test_a_move_without_another_replica_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    for to, shown in ((None, "r0"), ("r0", "r0"), ("r1", "r0→r1")):
        tables.print_events([Event(seq=1, at=0.0, kind="move", replica="r0", to_replica=to, request="a")])
        assert capsys.readouterr().out.splitlines()[1].split()[1:4] == ["move", shown, "a"]


def test_a_long_name_does_not_run_into_its_figure() -> None:
    name = "  waiting: token_budget"
    a, b = (Side("r2", {name: Fact(name, value)}) for value in (7, 9))
    for width in (80, 100):
        row = next(plain(row) for row in diff_rows(a, b, width) if "waiting" in plain(row))
        assert row.split()[:4] == ["waiting:", "token_budget", "7", "9"]
    assert "toke… 7" in plain(diff_rows(a, b, 54)[1]), "cut, and apart"
