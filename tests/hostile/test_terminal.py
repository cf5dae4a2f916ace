"""Hostile text in a real pseudo-terminal: no new kind of escape sequence, and the screen comes out as it
should."""

import re
import sys

import pytest
from hostile.corpus import FORBIDDEN
from support.demo import DONE
from support.terminal import PYTHONPATH, TESTS, Terminal

#: One escape sequence: CSI, a string (OSC, DCS, APC, PM, SOS), or a short one; or a lone control.
SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|[\x00-\x1f\x7f-\x9f]"
)


#: Textual's own: it ends with a BEL.
POINTER_SHAPE = "\x1b]22;default\x07"


def parade(what: str) -> tuple[str, list[str]]:
    """All that was written, and the last screen."""
    argv = [sys.executable, "-m", "support.demo", what]
    with Terminal(argv, columns=100, rows=30, env={"PYTHONPATH": PYTHONPATH}, cwd=TESTS) as terminal:
        terminal.wait("the end of the parade", lambda text: f"{DONE} caught" in text, timeout_s=90)
        lines = terminal.lines()
        raw = terminal.raw.decode("utf-8", "replace")
    return raw, lines


def shapes(raw: str) -> set[str]:
    """Escape sequences without their numbers; colours and cursor moves are ours by the thousand."""
    found = {re.sub(r"[0-9;]+", "#", match) for match in SEQUENCE.findall(raw)}
    return found - {"\x1b[#m", "\x1b[#H"}


@pytest.mark.terminal
def test_a_parade_of_hostile_texts_changes_nothing_but_text() -> None:
    benign_raw, benign = parade("benign")
    hostile_raw, hostile = parade("hostile")
    assert shapes(hostile_raw) <= shapes(benign_raw)
    text = hostile_raw.replace(POINTER_SHAPE, "")
    assert not (FORBIDDEN - {"\x1b", "\r", "\n"}).intersection(text)
    assert f"{DONE} caught 0" in "\n".join(hostile)
    assert hostile == benign
