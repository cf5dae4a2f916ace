"""Numbers, bars and curves: unknown is never zero, something is never nothing."""

import dataclasses

import pytest
from infer_console.state.picture import Series
from infer_console.view import format as shown
from infer_console.view.diff import Fact, Side, diff_rows
from infer_console.view.gauge import bar, kv_gauge, kv_head, progress
from infer_console.view.planner_rows import token_words
from infer_console.view.row import plain
from infer_console.view.spark import fold, samples_per_cell, sparkline, tall_sparkline
from infer_console.view.waiting import waiting_section
from infer_engine.protocol import Kv
from msgspec.structs import replace
from support import pictures


@pytest.mark.parametrize(
    "function",
    [
        shown.count,
        shown.short_count,
        shown.rate,
        shown.percent,
        shown.seconds,
        shown.milliseconds,
        shown.age,
        shown.size,
        shown.clock,
    ],
)
def test_unknown_is_a_dash(function: object) -> None:
    assert callable(function)
    for value in (None, float("nan"), float("inf")):
        assert function(value) == "–"
    assert function(0.0) != "–"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.004, "<1"), (0.65, "65"), (0.999, "99"), (1.0, "100"), (1.2, "120")]
)
def test_percent(value: float, text: str) -> None:
    assert shown.percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.001, "<.01"),
        (0.04, ".04"),
        (0.4, ".4"),
        (0.97, "1.0"),
        (48, "48.0"),
        (99.96, "100"),
        (312, "312"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert shown.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0s"),
        (0.4, ".4s"),
        (1.24, "1.2s"),
        (47, "47s"),
        (78, "78s"),
        (190, "3m10s"),
        (7500, "2h05m"),
        (6e5, "6d"),
    ],
)
def test_age(value: float, text: str) -> None:
    assert shown.age(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(412, "412"), (6200, "6.2k"), (38_000, "38k"), (1.3e6, "1.3M"), (999.6, "1000"), (5e13, ">1T")],
)
def test_short_count(value: float, text: str) -> None:
    assert shown.short_count(value) == text


def test_sizes_and_times() -> None:
    assert shown.size(335_544_320) == "336 MB"
    assert shown.size(4_600_000_000) == "4.6 GB"
    assert shown.milliseconds(0.0004) == "<1"
    assert shown.clock(1772939486) == "03:11:26Z"


def gauge(used: int, cached: int = 0, total: int = 100, width: int = 22) -> str:
    kv = Kv(block_size=16, total=total, used=used, cached=cached, admit_limit=90, batch_limit=65)
    return plain(kv_gauge(kv, width))


def test_gauge_has_both_marks_where_they_belong() -> None:
    assert gauge(0) == "·············╎·····┃··"
    assert gauge(50) == "██████████···╎·····┃··"
    assert gauge(100) == "█████████████╎█████┃██"
    assert gauge(80, 10) == "█████████████╎███▒▒┃··"


def test_gauge_shows_a_little_and_not_quite_all() -> None:
    assert gauge(1).startswith("█·")
    assert gauge(99).endswith("·")
    assert plain(kv_gauge(Kv(), 22)) == "–"


def test_gauge_head_names_the_marks() -> None:
    kv = Kv(total=100, used=1, admit_limit=90, batch_limit=65)
    head = plain(kv_head(kv, 24))
    assert head.index("╎65") == plain(kv_gauge(kv, 24)).index("╎")
    assert plain(kv_head(None, 24)) == "KV"


@pytest.mark.parametrize("width", [12, 18, 30])
def test_where_both_marks_are_at_one_place_that_of_all_is_named(width: int) -> None:
    head = plain(kv_head(Kv(total=100, used=5, admit_limit=70, batch_limit=80), width))
    assert "┃70" in head
    assert "╎" not in head


def test_columns_do_not_run_together() -> None:
    assert token_words(8_192.0) == "8,192 tok"
    assert token_words(130_091.0) == "130,091 tok"
    assert token_words(13_009_157.0) == "13.0M tok"
    a = Side("a", {"  waiting: token_budget": Fact("  waiting: token_budget", 7.0)})
    b = Side("b", {"  waiting: token_budget": Fact("  waiting: token_budget", 9.0)})
    assert any({"token_budget", "7"} <= {*plain(row).split()} for row in diff_rows(a, b, 100))


def test_words_that_differ_are_told_whole_and_what_has_no_room_is_counted() -> None:
    alarms = "drained, queueing_on_kv, slow_ttft"
    a = Side("a", {"alarms": Fact("alarms", "")} | {f"n{i}": Fact(f"n{i}", 1.0) for i in range(3)})
    b = Side("b", {"alarms": Fact("alarms", alarms)} | {f"n{i}": Fact(f"n{i}", 2.0) for i in range(3)})
    whole = [plain(row) for row in diff_rows(a, b, 80)]
    assert [word for row in whole[1:] for word in row.split()][2:5] == alarms.split()
    assert "3 figures" not in whole[-1]
    for height in range(3, 9):
        rows = [plain(row) for row in diff_rows(a, b, 80, height)]
        assert len(rows) <= height
        shown = sum(row.split()[:1] in (["alarms"], ["n0"], ["n1"], ["n2"]) for row in rows)
        assert (f" … {4 - shown} more differ" in map(str.rstrip, rows)) == (shown < 4), rows


def test_reasons_of_another_moment_than_who_waits_say_so() -> None:
    picture = pictures.incident()
    known = picture.totals
    assert known is not None

    def title(waiting: int) -> str:
        totals = replace(known, waiting=waiting, waiting_reasons={"token_budget": 28})
        return plain(waiting_section(dataclasses.replace(picture, totals=totals), 80, 8)[0])

    assert "reasons of the last steps: 28" in title(25)
    assert "reasons" not in title(28)


def test_bars() -> None:
    assert plain(bar(1, 1000, 14)) == "▏"
    assert plain(bar(1000, 1000, 3)) == "███"
    assert bar(0, 1000, 14) == ()
    assert plain(progress(99, 100, 10)) == "█████████·"
    assert plain(progress(100, 100, 10)) == "██████████"


def test_curve_leaves_gaps_where_nothing_was_known() -> None:
    assert sparkline([None, 0.0, 5.0, 10.0]) == " ▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([0.5], top=1.0) == "▅"
    assert sparkline([0.2, 0.0], least_top=1.0) == "▂▁"
    assert sparkline([5.0, 10.0], least_top=1.0) == "▅█"
    assert tall_sparkline([None, 0.0, 5.0, 7.5, 10.0], 2) == ["  ▁▅█", " ▁███"]


def test_cells_keep_their_boundaries_while_samples_come_and_go() -> None:
    """A bounded history loses its oldest sample with every new one; only the cells at the ends may
    change."""
    values = [float(index * 7 % 10) for index in range(40)]
    before = fold(Series(2.0, tuple(values[0:30]), taken=30), 10, 4)
    after = fold(Series(2.0, tuple(values[1:31]), taken=31), 10, 4)
    assert before[-7:-1] == after[-7:-1]
    assert fold(Series(2.0, tuple(values[2:32]), taken=32), 10, 4)[-7:-1] == before[-7:-1]


def test_curve_uses_the_room_it_has() -> None:
    assert samples_per_cell(Series(2.0, (1.0,) * 900), 90) == 10
    assert samples_per_cell(Series(2.0, (1.0,) * 20), 90) == 1
    assert fold(Series(2.0), 3, 1) == [None, None, None]
