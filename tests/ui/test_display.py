"""Copying, ringing and drawing in ASCII, in a real terminal."""

import re
import sys
from base64 import b64decode

import pytest
from support.terminal import PYTHONPATH, TESTS, Terminal

pytestmark = pytest.mark.terminal
COPIED = re.compile(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)\x1b\\")
TITLE = re.compile(rb"\x1b\]2;([^\x1b]*)\x1b\\")


def console(what: str = "incident", **env: str) -> Terminal:
    argv = [sys.executable, "-m", "support.demo", what]
    return Terminal(argv, columns=120, rows=36, env={"PYTHONPATH": PYTHONPATH, **env}, cwd=TESTS)


def rung(terminal: Terminal) -> int:
    """How often the bell was rung; Textual ends sequences of its own with the same character."""
    return re.sub(rb"\x1b\][^\x07\x1b]*\x07", b"", bytes(terminal.raw)).count(b"\x07")


def test_y_copies_what_is_under_the_cursor_and_says_so() -> None:
    with console() as terminal:
        terminal.wait_for("RUN 186")
        terminal.send("y")
        text = terminal.wait_for("to the clipboard: r[0-9]")
        copied = COPIED.findall(bytes(terminal.raw))
        assert [b64decode(each).decode() for each in copied] == re.findall("to the clipboard: (r[0-9])", text)
        terminal.send("q")
        assert terminal.wait_exit() == 0


def test_a_critical_alarm_rings_and_its_title_goes_when_the_console_does() -> None:
    with console() as terminal:
        terminal.wait_for("RUN 186")
        terminal.wait("the title", lambda text: TITLE.search(bytes(terminal.raw)))
        terminal.wait("the bell", lambda _: rung(terminal))
        title = TITLE.search(bytes(terminal.raw))
        assert title is not None
        assert title[1].startswith(b"2 critical - eu-west/chat-70b: ")
        assert terminal.raw.count(b"\x1b[22;2t") == 1
        assert b"\x1b[23;2t" not in terminal.raw
        assert rung(terminal) == 1
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert terminal.raw.count(b"\x1b[23;2t") == 1


def test_no_byte_beyond_ascii_where_the_locale_has_none() -> None:
    with console(LC_ALL="C", LANG="C", PYTHONUTF8="1") as terminal:
        terminal.wait_for("RUN 186")
        terminal.send("2")
        terminal.wait_for("ROSTER")
        assert bytes(terminal.raw).isascii()
        assert "@@@" in terminal.text()
        terminal.send("q")
        assert terminal.wait_exit() == 0
