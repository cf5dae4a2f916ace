"""The frame diff: after any history the terminal shows what it should, and unchanged cells cost nothing."""

import random

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from infer_console.terminal.cells import Cells, append_text
from infer_console.terminal.frame import Frame
from infer_console.terminal.pen import PLAIN, Pen, change_pen, pen_of
from rich.color import ColorSystem
from rich.style import Style

WIDTH, HEIGHT = 30, 6
PENS = (
    PLAIN,
    Pen((), "38;2;200;10;10", "48;2;1;2;3"),
    Pen((1,), "38;2;200;10;10", "48;2;1;2;3"),
    Pen((1, 2), "32", ""),
    Pen((2, 7), "", "48;5;200"),
)
TEXTS = ("abc", "─█▓", "東京", "e\u0301x", " ", "0123456789", "a東", "東a")


def cells(text: str, pen: Pen = PLAIN) -> Cells:
    made: Cells = []
    append_text(made, text, pen)
    return made


class Screen:
    """A terminal that shows what a frame wrote."""

    def __init__(self, height: int = HEIGHT) -> None:
        self.screen = pyte.Screen(WIDTH, height)
        self._stream = pyte.Stream(self.screen)
        self.feed("\x1b[?7l")  # as the console has it: nothing wraps

    def feed(self, text: str) -> None:
        self._stream.feed(text)

    def grid(self) -> list[list[tuple[object, ...]]]:
        return [[self._cell(x, y) for x in range(WIDTH)] for y in range(HEIGHT)]

    def _cell(self, x: int, y: int) -> tuple[object, ...]:
        cell = self.screen.buffer[y][x]
        return (cell.data, cell.fg, cell.bg, cell.bold, cell.reverse)


def written_whole(frame: Frame) -> list[list[tuple[object, ...]]]:
    """The grid of a terminal that gets all that is wanted at once, every cell in its own place."""
    screen = Screen()
    for y, row in enumerate(frame.wanted):
        for x, (text, pen) in enumerate(row):
            if text not in ("", "\x00"):
                screen.feed(f"\x1b[{y + 1};{x + 1}H\x1b[0m{change_pen(PLAIN, pen)}{text}")
    return screen.grid()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_after_any_history_the_terminal_shows_what_it_should(seed: int) -> None:
    dice = random.Random(seed)
    frame, screen = Frame(WIDTH, HEIGHT), Screen()
    for y in range(HEIGHT):
        frame.put(0, y, cells(" " * WIDTH))
    for _ in range(25):
        for _ in range(dice.randrange(6)):
            text, pen = dice.choice(TEXTS) * dice.randrange(1, 4), dice.choice(PENS)
            frame.put(dice.randrange(WIDTH), dice.randrange(HEIGHT), cells(text, pen))
        match dice.randrange(5):
            case 0:
                continue  # this frame is not written
            case 1:
                screen.feed(frame.paint(dice.randrange(40), lambda y: -y).text)
            case 2:
                screen.feed("\x1b[2J")
                frame.forget()
                screen.feed(frame.paint().text)
            case _:
                screen.feed(frame.paint().text)
    while not frame.complete:
        screen.feed(frame.paint(1).text)
    assert frame.shown == frame.wanted
    assert screen.grid() == written_whole(frame)


def test_nothing_is_written_for_what_is_shown() -> None:
    frame = Frame(WIDTH, HEIGHT)
    frame.put(0, 0, cells("unchanged"))
    assert "unchanged" in frame.paint().text
    frame.put(0, 0, cells("unchanged"))
    assert frame.paint() == ("", True)


def test_only_changed_runs_are_written() -> None:
    frame = Frame(WIDTH, HEIGHT)
    frame.put(0, 2, cells("RUN 186  WAIT 44   KV 79%"))
    frame.paint()
    frame.put(0, 2, cells("RUN 187  WAIT 44   KV 80%"))
    assert frame.paint().text == "\x1b[3;7H7\x1b[23G80\x1b[m"


def test_a_short_gap_is_written_over_and_a_pen_is_kept() -> None:
    frame, pen = Frame(WIDTH, HEIGHT), Pen((1,), "31", "")
    frame.put(0, 0, cells("12:34:56", pen))
    frame.paint()
    frame.put(0, 0, cells("12:35:07", pen))
    assert frame.paint().text == "\x1b[1;5H\x1b[1;31m5:07\x1b[m"


def test_a_wide_character_goes_as_a_whole() -> None:
    frame, screen = Frame(WIDTH, HEIGHT), Screen()
    frame.put(0, 0, cells("東京 "))
    screen.feed(frame.paint().text)
    frame.put(0, 0, cells("x京 "))  # its left half is now x, its right half belongs to the next
    screen.feed(frame.paint().text)
    assert screen.grid()[0][:4] == written_whole(frame)[0][:4]
    assert screen.screen.display[0].startswith("x京")


def test_after_a_wide_character_the_column_is_said_again() -> None:
    frame = Frame(WIDTH, HEIGHT)
    frame.put(0, 0, cells("東b"))
    assert frame.paint().text == "\x1b[1H東\x1b[3Gb\x1b[m"


def test_a_budget_takes_the_first_ranks_and_nobody_waits_for_ever() -> None:
    frame = Frame(WIDTH, HEIGHT)
    for turn in range(40):
        frame.put(0, 0, cells(f"vital line {turn:3}"))
        frame.put(0, 3, cells(f"rest {turn:3}"))
        painted = frame.paint(12, rank=lambda y: y)
        if turn == 0:
            assert "vital" in painted.text
            assert not painted.complete
        if "rest" in painted.text:
            assert turn > 1
            return
    raise AssertionError("the last row was never written")


def test_rows_that_moved_are_moved_where_not_all_fits() -> None:
    """An alarm pushes the roster down, a new event the feed: no row is shown twice, none is lost."""
    frame, screen = Frame(WIDTH, 12), Screen(12)
    rows = [f"r{each} {'abcdef'[each] * 20}" for each in range(6)]
    rows += [f"event {'ghijklmn'[each] * 20}" for each in range(8)]

    def put() -> None:
        for y, text in enumerate(rows[:12]):
            frame.put(0, y, cells(text.ljust(WIDTH)))

    put()
    screen.feed(frame.paint().text)
    rows[2:2] = ["alarm: something is wrong"]
    rows[7:7] = ["event: the newest of them"]
    put()
    painted = frame.paint(45, rank=lambda y: y)
    screen.feed(painted.text)
    assert not painted.complete
    shown = [line.strip() for line in screen.screen.display]
    # What had to wait is blank, not another row.
    assert all(have in ("", want) for have, want in zip(shown, rows, strict=False))
    assert shown.count("") <= 2
    while not frame.complete:
        screen.feed(frame.paint(45).text)
    assert [line.strip() for line in screen.screen.display] == rows[:12]
    # What is written afterwards is not bound to the region that scrolled.
    frame.put(0, 11, cells("the last row".ljust(WIDTH)))
    screen.feed(frame.paint().text)
    assert screen.screen.display[11].strip() == "the last row"


def test_a_row_that_became_another_comes_before_one_that_only_changed() -> None:
    frame = Frame(WIDTH, HEIGHT)
    frame.put(0, 1, cells(" r1 runs 10"))
    frame.put(0, 2, cells(" r2 runs 20"))
    frame.paint()
    frame.put(0, 1, cells(" r1 runs 11"))
    frame.put(0, 2, cells(" r3 runs 20"))
    painted = frame.paint(1, rank=lambda y: y / HEIGHT)
    assert "3" in painted.text
    assert not painted.complete


def test_what_lies_outside_is_cut() -> None:
    frame = Frame(4, 1)
    frame.put(0, 0, cells("    "))
    frame.put(3, 0, cells("東"))
    frame.put(9, 0, cells("x"))
    frame.put(0, 5, cells("x"))
    assert frame.paint().text == "\x1b[1H    \x1b[m"


@pytest.mark.parametrize("before", PENS)
@pytest.mark.parametrize("after", PENS)
def test_a_pen_changes_into_any_other(before: Pen, after: Pen) -> None:
    screen, wanted = Screen(), Screen()
    screen.feed(change_pen(PLAIN, before) + "a" + change_pen(before, after) + "b")
    wanted.feed("a" + "\x1b[0m" + change_pen(PLAIN, after) + "b")
    assert screen.grid()[0][1] == wanted.grid()[0][1]


def test_a_style_becomes_a_pen_of_the_terminals_colours() -> None:
    style = Style.parse("bold #ff0000 on default")
    assert pen_of(style, ColorSystem.TRUECOLOR) == Pen((1,), "38;2;255;0;0", "")
    assert pen_of(style, ColorSystem.EIGHT_BIT).foreground.startswith("38;5;")
    assert pen_of(style, ColorSystem.STANDARD) == Pen((1,), "31", "")
    assert pen_of(None, ColorSystem.STANDARD) == PLAIN
