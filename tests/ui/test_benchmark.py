"""What `bench console` measures is really painted."""

import asyncio

from infer_console.ui.benchmark import pictures
from infer_console.ui.benchmark.paint import ROSTER_HEIGHT, WIDTH, cost
from infer_console.ui.themes import DEFAULT, load_themes
from infer_console.ui.widgets.canvas import Canvas
from infer_console.view.look import Look
from infer_console.view.roster import roster_section


def test_every_request_is_on_the_screen_and_changes_from_frame_to_frame() -> None:
    look = Look()
    first, second = (roster_section(pictures.batch(frame), look, WIDTH, ROSTER_HEIGHT) for frame in (0, 1))
    changed = sum(before != after for before, after in zip(first, second, strict=True))
    assert changed == pictures.REQUESTS


def test_blocks_change_hands_between_frames() -> None:
    before, after = pictures.pool(0, 1_024).blocks, pictures.pool(1, 1_024).blocks
    assert before is not None
    assert after is not None
    different = sum(a != b for a, b in zip(before.kinds, after.kinds, strict=True))
    assert 1 <= different <= 2 * pictures.CHANGED_BLOCKS


def test_frames_are_written_and_counted() -> None:
    async def measured() -> tuple[float, int]:
        canvas, look = Canvas(load_themes()[DEFAULT]), Look()

        def paint(frame: int) -> None:
            canvas.show(roster_section(pictures.batch(frame), look, WIDTH, ROSTER_HEIGHT))

        found = await cost(canvas, paint, ROSTER_HEIGHT, 2)
        return found.bytes, canvas.repainted_rows

    written, repainted = asyncio.run(measured())
    assert repainted >= ROSTER_HEIGHT + 2 * pictures.REQUESTS - 2
    assert written > pictures.REQUESTS


# --- the whole console, measured from outside --------------------------------------------------------------


def test_what_is_on_a_terminal_is_read_from_the_bytes_alone() -> None:
    from infer_console.ui.benchmark.replay import Replay

    replay = Replay(10, 3)
    written = "\x1b[?1049h\x1b[?25l\x1b]22;default\x07\x1b[2;3H\x1b[1;38;2;1;2;3mRÜN\x1b[9G7\x1b[m\x1b[6n\x07"
    for byte in written.encode():  # torn at every place
        replay.feed(bytes([byte]))
    replay.feed(b"\x1b[3Hx\r\ny")
    assert replay.lines() == [" " * 10, "  RÜN   7 ", "y         "]


def test_a_measure_says_whether_it_is_met() -> None:
    from infer_console.ui.benchmark.live import result

    assert result("m", 9.0, "s", 10.0)["met"] is True
    assert result("m", 11.0, "s", 10.0)["met"] is False
    assert result("m", 11.0, "s", None)["met"] is None
