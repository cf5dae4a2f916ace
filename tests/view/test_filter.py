"""The filter of the lists."""

import pytest
from infer_console.state.picture import Picture
from infer_console.view.filter import compiled
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import Look, Size
from infer_console.view.order import fleet_order
from infer_console.view.row import plain
from support import pictures


def shown(text: str, picture: Picture | None = None) -> list[str]:
    look = Look(filter=text, fleet_sort="id")
    return [replica.status.id for replica in fleet_order(picture or pictures.incident(), look)]


def test_an_expression_and_its_inverse() -> None:
    assert shown("^r[0-2]$") == ["r0", "r1", "r2"]
    assert shown("!^r[0-2]$") == ["r3", "r4", "r5", "r6", "r7"]
    assert shown("DRAIN") == ["r3"]
    assert shown("!ready") == ["r3", "r7"]
    assert len(shown("!")) == 8, "still being typed"
    assert len(shown("")) == 8


def test_what_is_no_expression_is_matched_literally_and_says_so() -> None:
    assert compiled("r(").trouble.startswith("not an expression")
    assert compiled("r(").shows("r(1")
    assert not compiled("r(").shows("r1")
    rows = [plain(row) for row in fleet_screen(pictures.incident(), Look(filter="r("), Size(120, 36), 0.0)]
    assert any("REPLICAS 0 of 8" in row and "matched literally" in row for row in rows)


@pytest.mark.parametrize("costly", ["(a+)+$", "(a|a)*b", "a*a*a*a*b", "(x{1,9}){1,9}"])
def test_what_could_take_for_ever_is_matched_literally(costly: str) -> None:
    assert "too costly" in compiled(costly).trouble
    assert not compiled(costly).shows("a" * 200)
    assert compiled(costly).shows(f"x{costly}x")
