"""The Traffic screen: what runs, what it does to users, how near its guard rails are."""

import dataclasses
import os
from pathlib import Path

import pytest
from infer_console.view.look import Look, Size
from infer_console.view.row import plain
from infer_console.view.traffic_rows import effect_section, rails_section
from infer_console.view.traffic_screen import traffic_screen
from infer_engine.protocol import Operation, TrafficStatus
from msgspec.structs import replace
from support import pictures
from support.traffic_pictures import ENDED, RAILS, RUNNING, with_traffic

GOLDEN = Path(__file__).parent / "golden"
SIZES = (Size(200, 50), Size(120, 36), Size(80, 24))
CASES = {"running": RUNNING, "ended": ENDED, "none": TrafficStatus(rails=RAILS)}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", SIZES, ids=[f"{size.width}x{size.height}" for size in SIZES])
def test_screen(name: str, size: Size) -> None:
    """``UPDATE_GOLDEN=1`` writes them anew; look at the difference."""
    rows = traffic_screen(with_traffic(CASES[name]), Look(), size, pictures.NOW)
    assert len(rows) == size.height
    assert all(sum(span.cells for span in row) == size.width for row in rows)
    text = "\n".join(plain(row) for row in rows) + "\n"
    path = GOLDEN / f"{name}-traffic-{size.width}x{size.height}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("size", [Size(40, 12), Size(20, 5), Size(300, 80)])
def test_any_size_is_filled(size: Size) -> None:
    rows = traffic_screen(with_traffic(RUNNING), Look(), size, pictures.NOW)
    assert len(rows) == size.height
    assert "TTFT" in "".join(map(plain, rows[:2])) or size.width < 40


def test_what_is_not_known_is_said_so() -> None:
    """An older server tells neither figures nor guard rails."""
    old = TrafficStatus(running=True, profile="chat", rate_per_s=1.0)
    text = "\n".join(map(plain, effect_section(old, 100) + rails_section(old, 100)))
    assert "nothing to compare yet" in text
    assert "does not tell them" in text
    assert RUNNING.users is not None
    quiet = replace(RUNNING, users=replace(RUNNING.users, ttft_p95_s=None))
    ttft = next(row for row in map(plain, effect_section(quiet, 100)) if row.startswith(" TTFT"))
    assert ttft.split() == ["TTFT", ".6", "s", "–", "–", "1.4", "s"]


def test_the_operation_shown_is_the_one_that_runs() -> None:
    old = Operation(
        id="op-2", kind="inject", target="fleet", phase="succeeded", started_at=pictures.NOW - 900, ended_at=1
    )
    now = replace(
        old,
        id="op-9",
        phase="running",
        started_at=pictures.NOW - 220,
        ended_at=None,
        deadline_at=pictures.NOW + 80,
        done=5,
        total=60,
    )
    late = replace(old, id="op-7", started_at=pictures.NOW - 400)

    def shown(*operations: Operation) -> str:
        picture = dataclasses.replace(with_traffic(RUNNING), operations=operations)
        rows = traffic_screen(picture, Look(), Size(120, 36), pictures.NOW)
        return next(row for row in map(plain, rows) if row.startswith(" op-"))

    assert shown(old, now, late).startswith(" op-9 inject fleet")
    assert " 5/60  ends in 80s" in shown(old, now, late)
    assert shown(old, late).startswith(" op-7 inject fleet")
    assert "its time is over" in shown(replace(now, deadline_at=pictures.NOW - 3))


def test_a_rail_shows_how_near_it_is() -> None:
    rows = [plain(row) for row in rails_section(RUNNING, 100)]
    assert [("△" in row) for row in rows[1:4]] == [False, True, True]
    alone = rails_section(replace(RUNNING, users_live=False), 100)
    assert "no user" in plain(alone[3])
    assert "△" not in plain(alone[3])
