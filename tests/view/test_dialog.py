"""A dialog at any size: what it will do and its buttons are the last to go."""

import pytest
from infer_console.actions import registry
from infer_console.actions.action import Undo, Verdict
from infer_console.view.dialog import Dialog, Prediction, dialog_rows, undo_words
from infer_console.view.form import Form
from infer_console.view.row import plain
from infer_engine.protocol import Operation, OperationPhase
from support import pictures


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("height", [8, 10, 15, 24, 36])
def test_what_it_will_do_is_shown_beside_the_buttons_whatever_the_size(width: int, height: int) -> None:
    form = Form.of(registry.action("drain"), "r2", {}, ())
    form.focus = 0
    dialog = Dialog(form, Prediction("server", ["9 requests running here will finish"], []))
    rows = dialog_rows(dialog, pictures.incident(), width, height, 0.0)
    text = "\n".join(plain(row) for row in rows)
    assert len(rows) <= height
    assert "Drain r2 ]" in text
    assert "9 requests" in text
    assert "mode" in text, "the field that is edited"


def shown_now(target: str) -> str:
    dialog = Dialog(Form.of(registry.action("tenant"), target, {}, ()), Prediction("screen", [], []))
    return plain(dialog_rows(dialog, pictures.incident(), 120, 30, 0.0)[1])


def test_a_tenants_dialog_tells_what_it_uses_now() -> None:
    named = [use for use in pictures.TENANTS if use.tenants == 1]
    assert len(named) > 1
    for use in named:
        words = shown_now(use.tenant)
        assert f"RUN {use.running}  WAIT {use.waiting}  KV " in words
        assert f"{use.kv_blocks:,} blk" in words


def test_a_tenant_without_a_row_of_its_own_is_not_said_to_be_gone() -> None:
    assert "not told: it may be one of 9 others" in shown_now("somebody")
    assert "not there" not in shown_now("somebody")


def test_the_own_key_again_is_no_part_of_the_word_and_says_so() -> None:
    form = Form.of(registry.action("cancel"), "7e0b12", {}, ())
    form.ask_for("")
    assert form.word == "7e0b12"
    form.key("X", "X")
    dialog = Dialog(form, Prediction("server", [], []))
    text = "\n".join(plain(row) for row in dialog_rows(dialog, pictures.incident(), 120, 30, 0.0))
    assert form.typed == ""
    assert "│ type 7e0b12 to confirm " in text
    form.key("7", "7")
    assert (form.typed, form.notice) == ("7", "")
    form.key("X", "X")
    assert form.typed == "7X", "what is begun is typed on"


def test_a_word_that_begins_with_the_own_key_can_be_typed() -> None:
    form = Form.of(registry.action("cancel"), "X1", {}, ())
    form.ask_for("")
    form.key("X", "X")
    form.key("1", "1")
    assert form.confirmed()


def drain_applied(phase: OperationPhase, done: bool) -> str:
    dialog = Dialog(Form.of(registry.action("drain"), "r2", {}, ()), Prediction("server", [], []))
    dialog.phase, dialog.operation = "applied", "op-9"
    dialog.outcome = ["4 requests running here will finish"]
    dialog.verdict = Verdict(done, "r2 is draining")
    operation = Operation(id="op-9", kind="drain", target="r2", phase=phase, started_at=0.0)
    picture = pictures.incident(operations=(operation,))
    return "\n".join(plain(row) for row in dialog_rows(dialog, picture, 120, 30, 0.0))


def test_what_was_foreseen_is_ticked_when_it_has_come_about() -> None:
    words = "4 requests running here will finish"
    assert f"✓ {words}" in drain_applied("succeeded", True)
    for phase, done in (("running", False), ("running", True), ("succeeded", False), ("failed", False)):
        text = drain_applied(phase, done)
        assert f"· {words}" in text, (phase, done)
        assert "✓ accepted; to come:" in text


def test_an_undo_is_named_as_the_command_line_takes_it() -> None:
    assert undo_words(Undo("shed-off", None, {})) == "shed off"
    assert undo_words(Undo("headroom", "r2", {"headroom": "30b"})) == "headroom r2 30b"
