"""Rows in the order in which a narrow link gets them."""

from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import Look, Size
from infer_console.view.priority import ALARM, FIRST, FOCUSED, row_ranks
from infer_console.view.row import plain
from support import pictures


def test_vital_line_then_alarms_then_what_is_near_the_cursor() -> None:
    rows = fleet_screen(pictures.incident(), Look(), Size(120, 36), pictures.NOW)
    ranks = row_ranks(rows)
    texts = [plain(row) for row in rows]
    assert ranks[0] == ranks[1] == ranks[-1] == FIRST
    alarms = [y for y, text in enumerate(texts) if text.lstrip().startswith(("▲ 1", "▲ 2"))]
    assert alarms
    assert all(ranks[y] == ALARM for y in alarms)
    cursor = next(y for y, row in enumerate(rows) if any(span.tone == "cursor" for span in row))
    assert ranks[cursor] == FOCUSED
    rest = [y for y in range(2, 35) if ranks[y] > FOCUSED]
    assert sorted(rest, key=lambda y: ranks[y]) == sorted(rest, key=lambda y: abs(y - cursor))
    assert all(rank < FOCUSED + 1 for rank in ranks)


def test_a_screen_of_one_row_has_a_rank() -> None:
    assert row_ranks(fleet_screen(pictures.incident(), Look(), Size(80, 1), pictures.NOW)) == [FIRST]
