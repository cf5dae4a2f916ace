"""What is written to a real terminal: cells that changed, and in the end exactly what the compositor would
draw."""

import inspect
import random
import re
import time
from pathlib import Path

import pytest
from infer_console.terminal.link import LinkBudget
from infer_console.ui.app import ConsoleApp
from infer_console.ui.painter import Painter
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from support.oracle import assert_at_rest, assert_shows, oracle, told
from textual import _compositor, app, screen
from textual.geometry import Region
from textual.strip import Strip

NEXT, QUESTION = "\x0e", b"\x1b[6n"
KEYS = (*"jkgGsvtp124!?", "tab", "enter", "esc", "/r", "D", "H", NEXT, NEXT, NEXT)


@pytest.mark.terminal
@pytest.mark.parametrize(("seed", "answers"), [(1, True), (2, False)])
def test_at_rest_the_terminal_equals_the_full_render(seed: int, answers: bool, tmp_path: Path) -> None:
    dice = random.Random(seed)
    sent: list[str] = []
    path = tmp_path / "told"
    with oracle(path, answers=answers) as terminal:
        terminal.wait_for("RUN 186")
        number = 1
        for turn in range(1, 8):
            for key in dice.choices(KEYS, k=dice.randrange(1, 9)):
                sent.append(key)
                terminal.send(key)
                if dice.random() < 0.3:
                    time.sleep(0.03)  # so that some frames are of one key and some of several
            if turn % 3 == 0:
                size = dice.choice([(120, 36), (80, 24), (100, 30)])
                sent.append(str(size))
                terminal.resize(*size)
            number = assert_at_rest(terminal, path, number, sent)
        assert QUESTION in terminal.raw


@pytest.mark.terminal
def test_a_frame_in_which_a_number_changed_is_a_few_bytes(tmp_path: Path) -> None:
    with oracle(tmp_path / "told") as terminal:
        terminal.wait_for("RUN 186")
        number = assert_at_rest(terminal, tmp_path / "told", 1, [])
        before, shown = len(terminal.raw), terminal.grid()
        terminal.send("j")
        terminal.wait("the other row under the cursor", lambda _: terminal.grid() != shown)
        number = assert_at_rest(terminal, tmp_path / "told", number, ["j"])
        moved = terminal.raw[before:]
        # Two rows change their ground and nothing else: 120 bytes of text each, and some colours; a window
        # title may still be on its way. A whole screen is 15,000 bytes.
        assert 0 < len(moved) < 3_000, len(moved)
        # Where nothing changed nothing is written, once the title is there.
        for again in range(number, number + 20):
            before = len(terminal.raw)
            told(terminal, tmp_path / "told", again)
            if len(terminal.raw) == before:
                break
        else:
            raise AssertionError("it writes though nothing changed")


@pytest.mark.terminal
def test_what_another_program_wrote_over_the_screen_is_repaired_by_one_key(tmp_path: Path) -> None:
    with oracle(tmp_path / "told") as terminal:
        terminal.wait_for("RUN 186")
        assert_at_rest(terminal, tmp_path / "told", 1, [])
        wanted = terminal.grid()
        with terminal._lock:
            terminal._stream.feed(b"\x1b[2Jwall: the machine goes down")
        assert terminal.grid() != wanted
        terminal.send("\x0c")
        assert_shows(terminal, wanted, ["ctrl+l"])


# --- the contract with the pinned Textual ------------------------------------------------------------------


def test_textual_hands_its_frames_over_in_one_place() -> None:
    calls = re.findall(r"app\._display\(", inspect.getsource(screen))
    assert len(calls) == 2
    assert list(inspect.signature(app.App._display).parameters) == ["self", "screen", "renderable"]
    assert list(inspect.signature(ConsoleApp._display).parameters) == ["self", "screen", "renderable"]
    source = inspect.getsource(_compositor.Compositor.render_update)
    assert "render_full_update" in source
    assert "render_partial_update" in source
    assert set(_compositor.LayoutUpdate([], Region(0, 0, 1, 1)).__dict__) == {"strips", "region"}
    assert set(_compositor.ChopsUpdate([], [], []).__dict__) == {"chops", "spans", "chop_ends"}


def test_whole_chops_are_compared_whatever_the_dirty_span_is() -> None:
    """The stock renderer paints a chop from its left edge; so what is left of the span has to be seen too."""
    painter = Painter(LinkBudget("fast"), colors=ColorSystem.TRUECOLOR)
    strip = Strip([Segment("left "), Segment("right", Style(bold=True))])
    update = _compositor.ChopsUpdate([{0: strip, 10: None}], [(0, 8, 9)], [[10, 20]])
    painter.take(update, 20, 1)
    written: list[str] = []
    assert painter.flush(written.append, queued=0, urgent=False, synchronised=False)
    assert written == ["\x1b[1Hleft \x1b[1mright\x1b[m"]
    assert painter.flush(written.append, queued=0, urgent=False, synchronised=False)
    assert len(written) == 1


def test_what_is_not_written_is_not_forgotten() -> None:
    painter = Painter(LinkBudget("fast"), colors=ColorSystem.TRUECOLOR)
    written: list[str] = []
    for text in ("one", "two"):
        region = Region(0, 0, 3, 1)
        painter.take(_compositor.LayoutUpdate([[Strip([Segment(text)])]], region), 3, 1)
        assert not painter.flush(written.append, queued=99, urgent=False, synchronised=False)
    assert not written
    assert painter.flush(written.append, queued=0, urgent=False, synchronised=True)
    assert written == ["\x1b[?2026h\x1b[1Htwo\x1b[m\x1b[?2026l"]


# --- the answers of the terminal ---------------------------------------------------------------------------


@pytest.mark.terminal
def test_answers_are_no_keys_however_torn_they_come(tmp_path: Path) -> None:
    """Every character of an answer alone, slower than the parser waits: none of them goes anywhere, though
    the last one would go to another screen. The console holds what may go on for as long as it takes: a busy
    machine sends the next character when it can."""
    with oracle(tmp_path / "told", what="holding") as terminal:
        terminal.wait_for("RUN 186")
        wanted = told(terminal, tmp_path / "told", 1)
        terminal.screen.write_process_input = lambda data: None  # type: ignore[method-assign]
        for torn, answer in enumerate(("\x1b[12;41R", "\x1b[1;2R")):
            terminal.send("ttt")  # other colours, and a question behind the frame that stays open
            terminal.wait(
                "an open question",
                lambda _, torn=torn: terminal.raw.count(QUESTION) > terminal.answered + torn,
            )
            for character in answer:
                terminal.send(character)
                time.sleep(0.13)
        terminal.screen.write_process_input = terminal._answer  # type: ignore[method-assign]
        terminal.send("\x1b[1;1R")
        shown = told(terminal, tmp_path / "told", 2)
        assert [[cell[0] for cell in row] for row in shown[:-1]] == [
            [cell[0] for cell in row] for row in wanted[:-1]
        ]
        terminal.wait_for("RUN 186")
