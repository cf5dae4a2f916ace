"""The Doctor and audit screen as text, and the row that proposes. ``UPDATE_GOLDEN=1`` writes the screens
anew."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from infer_console.state.audit import read_audit
from infer_console.state.picture import Picture
from infer_console.view.doctor_screen import doctor_screen
from infer_console.view.evidence import evidence_words
from infer_console.view.look import Look, Size
from infer_console.view.proposal import proposal_row
from infer_console.view.row import plain
from support.doctor_pictures import FINDINGS, audit_page, denied, doctored
from support.pictures import NOW, incident

GOLDEN = Path(__file__).parent / "golden"
SIZES = (Size(200, 50), Size(120, 36), Size(80, 24))


def text_of(picture: Picture, size: Size, look: Look | None = None) -> str:
    rows = doctor_screen(picture, look or Look(), size, NOW)
    assert len(rows) == size.height
    assert all(sum(span.cells for span in row) == size.width for row in rows)
    return "\n".join(plain(row) for row in rows) + "\n"


@pytest.mark.parametrize(("name", "make"), [("incident", doctored), ("denied", denied)])
@pytest.mark.parametrize("size", SIZES, ids=[f"{size.width}x{size.height}" for size in SIZES])
def test_screen(name: str, make: Callable[[], Picture], size: Size) -> None:
    text = text_of(make(), size)
    path = GOLDEN / f"{name}-doctor-{size.width}x{size.height}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_an_audit_that_is_not_told_is_not_counted_as_empty() -> None:
    for picture in (denied(), doctored(audit=None)):
        text = text_of(picture, Size(120, 36))
        assert "AUDIT –" in text
        assert "AUDIT 0" not in text


@pytest.mark.parametrize("width", [1, 5, 20, 40, 60, 80, 100, 119, 160, 300])
def test_every_size_is_drawn(width: int) -> None:
    for height in (1, 2, 3, 5, 10, 12, 24, 50):
        for make in (doctored, denied):
            text_of(make(), Size(width, height))


def test_a_changed_record_is_seen() -> None:
    page = audit_page()
    page.records[3]["reason"] = "nothing at all"
    assert "▲ the chain is broken" in text_of(doctored(audit=read_audit(page)), Size(120, 36))
    assert read_audit(audit_page()).broken is None


def test_the_filter_leaves_what_contains_it() -> None:
    text = text_of(doctored(), Size(120, 36), Look(filter="acme"))
    assert "tenant crowding" in text
    assert "gpu fault" not in text
    assert "no finding matches the filter" in text_of(doctored(), Size(120, 36), Look(filter="nobody"))


def test_the_first_finding_with_an_action_is_proposed() -> None:
    row = proposal_row(doctored(), 120)
    assert row is not None
    assert plain(row).startswith(" doctor: acme to 34% of each pool → as its requests end")
    assert plain(row).endswith("T: plan")
    row = proposal_row(doctored(), 100, "r5")
    assert row is not None
    assert plain(row).endswith("8: plan")
    headroom = dataclasses.replace(doctored(), findings=FINDINGS[2:])
    assert proposal_row(headroom, 120, "r0") is None
    row = proposal_row(headroom, 120, "r5")
    assert row is not None
    assert plain(row).startswith(" doctor: r5: headroom back to 3,052 blocks → admitted up to 27,465")
    without = dataclasses.replace(doctored(), findings=FINDINGS[:1])
    row = proposal_row(without, 120)
    assert row is not None
    assert "its GPU: 2 uncorrectable ECC errors" in plain(row)
    assert proposal_row(incident(), 120) is None


@pytest.mark.parametrize("width", [1, 10, 40, 80, 200])
def test_the_proposal_fills_its_row(width: int) -> None:
    row = proposal_row(doctored(), width)
    assert row is not None
    assert sum(span.cells for span in row) == width


def test_names_of_tenants_reach_no_terminal_as_they_are() -> None:
    evil = msgspec.structs.replace(
        FINDINGS[1], words="\x1b]52;c;AAAA\x07 holds", evidence={"tenant": "\x9b2J"}
    )
    picture = dataclasses.replace(doctored(), findings=(evil,))
    text = text_of(picture, Size(120, 36))
    assert not any(ord(each) < 32 or 0x7F <= ord(each) < 0xA0 for each in text.replace("\n", ""))


def test_evidence_has_its_units() -> None:
    words = evidence_words(FINDINGS[1])
    assert "kv share 82%" in words
    assert "prompt tokens p50 99,840" in words
    assert "changed ago 4m11s" in evidence_words(FINDINGS[2])
