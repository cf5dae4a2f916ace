"""Keys that arrive faster than screens change, as they do over a slow link: one read, several keys."""

import sys

import pytest
from support.terminal import PYTHONPATH, TESTS, Terminal, to_replica_and_back

pytestmark = pytest.mark.terminal


def console() -> Terminal:
    argv = [sys.executable, "-m", "support.demo", "incident"]
    return Terminal(argv, columns=120, rows=36, env={"PYTHONPATH": PYTHONPATH}, cwd=TESTS)


def test_keys_behind_the_one_that_closes_a_box_reach_the_screen_below() -> None:
    with console() as terminal:
        terminal.wait_for("RUN 186")
        for keys in ("jj", "jjj", "jjjj"):
            terminal.send("?")
            terminal.wait_for("(?i)any key|what the signs mean|help")
            terminal.send(keys)
            terminal.wait_for("RUN 186")
            to_replica_and_back(terminal)
        terminal.send("q")
        assert terminal.wait_exit() == 0


def test_keys_behind_the_enter_of_a_filter_are_not_typed_into_it() -> None:
    with console() as terminal:
        terminal.wait_for("RUN 186")
        terminal.send("/r5\r2")
        terminal.wait_for("ROSTER")
        terminal.send("q")
        assert terminal.wait_exit() == 0


def test_the_key_again_before_the_prediction_was_shown_applies_nothing() -> None:
    with console() as terminal:
        terminal.wait_for("RUN 186")
        terminal.send("DD")
        terminal.wait_for("prediction")
        terminal.wait_for("again applies")
        terminal.send("q")  # typed into the dialog, which is still open
        terminal.send("\x1b")
        terminal.wait("the dialog gone", lambda text: "again applies" not in text)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert "✓".encode() not in terminal.raw


def test_esc_and_enter_in_one_read_close_a_dialog_and_apply_nothing() -> None:
    with console() as terminal:
        terminal.wait_for("RUN 186")
        terminal.send("D")
        terminal.wait_for("again applies")
        terminal.send("\x1b\r")
        terminal.wait("the dialog gone", lambda text: "again applies" not in text)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert "✓".encode() not in terminal.raw


def test_neither_what_is_pasted_nor_what_is_no_text_acts_or_ends_the_console() -> None:
    with console() as terminal:
        terminal.wait_for("RUN 186")
        terminal.send_bytes(b"\xff\xc3\x9bJ")
        terminal.send_bytes(b"\x1b[200~\x1bq\x1bD\x1b2\x1b[B\x1b[201~")
        terminal.send("/")
        terminal.wait_for("filter: ")
        terminal.send_bytes(b"\x1b[200~r5\x1b\r\x1bq\x1b[201~")
        terminal.wait_for("filter: r5␛")
        terminal.send_bytes(b"\x1b2")
        terminal.wait_for("ROSTER")
        terminal.send("q")
        assert terminal.wait_exit() == 0
