"""How many bytes a busy screen is at two frames a second: counted, so that it cannot grow unseen."""

import dataclasses
from collections.abc import Callable
from statistics import mean

import msgspec
import pytest
from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.terminal.link import LinkBudget
from infer_console.ui.benchmark import pictures as bench
from infer_console.ui.painter import Painter
from infer_console.ui.themes import DEFAULT, load_themes
from infer_console.ui.widgets.canvas import Canvas
from infer_console.view.border import bordered, inside
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import Look, Size
from infer_console.view.replica_screen import replica_screen
from infer_console.view.row import Row
from infer_engine.protocol import Totals
from rich.color import ColorSystem
from support import pictures
from textual._compositor import LayoutUpdate
from textual.geometry import Region

SIZE = Size(200, 50)
#: At two frames a second and 30 steps a second.
STEPS_A_FRAME, FRAMES, HZ = 15, 8, 2
MOST_BYTES_PER_S = 8_000


def busy(frame: int) -> Picture:
    """Two replicas with 64 running and 40 waiting each; a frame later every request has 15 tokens more, and
    blocks have changed hands."""
    replicas: dict[str, ReplicaPicture] = {}
    for name in ("r0", "r1"):
        batch = bench.batch(frame * STEPS_A_FRAME)
        waiting = {
            f"{name}w{number:02}": msgspec.structs.replace(
                next(iter(batch.rows.values())),
                id=f"{name}w{number:02}",
                state="waiting",
                phase="prefill",
                generated_tokens=0,
                kv_blocks=0,
                queue_wait_s=number + frame / HZ,
                waiting_reason="kv",
            )
            for number in range(40)
        }
        status = msgspec.structs.replace(batch.status, id=name, waiting=40, tokens_per_s=1_900.0 + 7 * frame)
        replicas[name] = ReplicaPicture(
            status=status,
            rows=batch.rows | waiting,
            order=batch.order,
            blocks=bench.pool(frame, 1_024).blocks,
        )
    totals = Totals(replicas=2, ready=2, running=128, waiting=80, tokens_per_s=3_800.0 + 14 * frame)
    at = pictures.NOW + frame / HZ
    return dataclasses.replace(pictures.small(), at=at, replicas=replicas, totals=totals)


class Counted:
    """Rows to bytes by the way that frames of the console go."""

    def __init__(self) -> None:
        self.painter = Painter(LinkBudget("auto"), colors=ColorSystem.TRUECOLOR)
        self._canvas = Canvas(load_themes()[DEFAULT])

    def frame(self, rows: list[Row], size: Size = SIZE) -> int:
        strips = [[self._canvas._strip(row)] for row in rows]
        self.painter.take(LayoutUpdate(strips, Region(0, 0, *size)), *size)
        before = self.painter.written_bytes
        assert self.painter.flush(lambda text: None, queued=0, urgent=False, synchronised=True)
        return self.painter.written_bytes - before


@pytest.mark.parametrize("screen", ["fleet", "replica"])
def test_a_busy_screen_stays_below_its_bytes(screen: str) -> None:
    counted, look = Counted(), Look(replica="r0")

    def rows(frame: int) -> list[Row]:
        picture, now = busy(frame), pictures.NOW + frame / HZ
        draw = fleet_screen if screen == "fleet" else replica_screen
        return draw(picture, look, SIZE, now)

    whole = counted.frame(rows(0))
    frames = [counted.frame(rows(frame)) for frame in range(1, FRAMES + 1)]
    assert min(frames) > 0
    assert mean(frames) * HZ <= MOST_BYTES_PER_S, frames
    assert max(frames) < whole


def test_a_screen_at_rest_costs_next_to_nothing() -> None:
    counted, look = Counted(), Look(replica="r0")
    counted.frame(replica_screen(busy(0), look, SIZE, pictures.NOW))
    seconds = [counted.frame(replica_screen(busy(0), look, SIZE, pictures.NOW + second)) for second in (1, 2)]
    assert mean(seconds) <= 250, seconds  # ages and the clock go on, once a second


@pytest.mark.parametrize("size", [SIZE, Size(80, 24)])
@pytest.mark.parametrize("draw", [fleet_screen, replica_screen])
def test_the_border_of_production_is_written_once(
    draw: Callable[[Picture, Look, Size, float], list[Row]], size: Size
) -> None:
    def frames(border: bool) -> list[int]:
        counted, look = Counted(), Look(replica="r0")
        written: list[int] = []
        for frame in range(FRAMES):
            picture, now = busy(frame), pictures.NOW + frame / HZ
            # As wide inside as without, so that the same is drawn.
            rows = draw(picture, look, inside(size), now)
            written.append(counted.frame(bordered(rows, size.width) if border else rows, size))
        return written

    without, with_border = frames(False), frames(True)
    assert with_border[0] > without[0]
    assert with_border[1:] == without[1:]
