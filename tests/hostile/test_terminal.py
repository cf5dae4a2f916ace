"""Hostile text in a real pseudo-terminal: no new kind of escape sequence, and the screen comes out as it
should."""

import re
import sys

import pyte
import pytest
from hostile.corpus import BENIGN, FORBIDDEN, PARADE
from support.demo import DONE, acts_of
from support.terminal import PYTHONPATH, TESTS, Terminal

#: One escape sequence: CSI, a string (OSC, DCS, APC, PM, SOS), or a short one; or a lone control.
SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|[\x00-\x1f\x7f-\x9f]"
)

COLUMNS, ROWS = 100, 30
#: The window's title, for critical alarms: it holds what an alarm says, cleaned.
TITLE = re.compile(r"\x1b\]2;[ -~]*\x1b\\")

#: Textual's own: it ends with a BEL.
POINTER_SHAPE = "\x1b]22;default\x07"


def parade(what: str) -> tuple[str, list[str]]:
    """All that was written, and the last screen."""
    argv = [sys.executable, "-m", "support.demo", what]
    with Terminal(argv, columns=COLUMNS, rows=ROWS, env={"PYTHONPATH": PYTHONPATH}, cwd=TESTS) as terminal:
        terminal.wait("the end of the parade", lambda text: f"{DONE} caught" in text, timeout_s=140)
        lines = terminal.lines()
        raw = terminal.raw.decode("utf-8", "replace")
    return raw, lines


def shapes(raw: str) -> set[str]:
    """Escape sequences without their numbers; colours and cursor moves are ours by the thousand."""
    raw = TITLE.sub("\x1b]2;TITLE\x1b\\\\", raw)
    found = {re.sub(r"[0-9;]+", "#", match) for match in SEQUENCE.findall(raw)}
    return found - {"\x1b[#m", "\x1b[#H"}


Grid = list[list[tuple[object, ...]]]
#: A frame begins and ends with a change of pen, at the latest.
FRAME = re.compile(rb"(?<=\x1b\[m)")
#: A column of others' texts is as wide at least as this beyond what harmless ones fill of it.
NEAR = 6
ACT = re.compile(r"^ act (\d+) (\w+ \w+) of \d+")


def grids(raw: bytes) -> dict[str, list[Grid]]:
    """The terminal at the end of every act, by the act's kind: what the operator saw, not only what was left
    in the end."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    seen: dict[tuple[str, int], Grid] = {}
    for frame in FRAME.split(raw):
        stream.feed(frame)
        bottom = "".join(screen.buffer[ROWS - 1][column].data for column in range(COLUMNS))
        act = ACT.match(bottom)
        if act is not None:
            seen[act[2], int(act[1])] = [
                [(cell.data, cell.fg, cell.bg) for cell in (screen.buffer[y][x] for x in range(COLUMNS))]
                for y in range(ROWS - 1)
            ]
    by_kind: dict[str, list[Grid]] = {}
    for (kind, _), shown in seen.items():
        by_kind.setdefault(kind, []).append(shown)
    return by_kind


def fixed_cells(shown: list[Grid]) -> list[tuple[int, int]]:
    """The cells that no harmless text changes, nor any in their row nearby: they lie outside every pane and
    column of others' texts."""
    first = shown[0]
    fixed: list[tuple[int, int]] = []
    for y in range(ROWS - 1):
        changed = [x for x in range(COLUMNS) if any(other[y][x] != first[y][x] for other in shown)]
        free = set(range(COLUMNS)) - {x + by for x in changed for by in range(-NEAR, NEAR + 1)}
        fixed += [(y, x) for x in sorted(free)]
    return fixed


@pytest.mark.terminal
@pytest.mark.apart
@pytest.mark.timeout(900)  # two parades, drawn twice each by a slow emulator
def test_a_parade_of_hostile_texts_changes_nothing_but_text() -> None:
    benign_raw, benign = parade("benign")
    hostile_raw, hostile = parade("hostile")
    assert shapes(hostile_raw) <= shapes(benign_raw)
    text = hostile_raw.replace(POINTER_SHAPE, "")
    assert text.count("\x07") <= 12, "it rings all the time"
    assert not (FORBIDDEN - {"\x1b", "\r", "\n", "\x07"}).intersection(text)
    assert f"{DONE} caught 0" in "\n".join(hostile)
    assert hostile == benign
    harmless, attacked = grids(benign_raw.encode()), grids(hostile_raw.encode())
    assert set(harmless) == set(attacked)
    for kind, shown in attacked.items():
        texts = [act.text for act in acts_of(PARADE) if act.kind == kind]
        assert len(harmless[kind]) == sum(act.kind == kind for act in acts_of(BENIGN)), kind
        assert len(shown) == len(texts), kind
        fixed = fixed_cells(harmless[kind])
        assert len(fixed) > ROWS * COLUMNS / 30, kind
        for text, grid in zip(texts, shown, strict=True):
            moved = [(y, x) for y, x in fixed if grid[y][x] != harmless[kind][0][y][x]]
            assert not moved, f"{kind}: {text[:40]!a} changed {moved[:5]}"
