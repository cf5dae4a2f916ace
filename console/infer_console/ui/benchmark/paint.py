"""Bytes and CPU time per frame of the widgets that change all the time, beside Textual's own with the same
content.

The apps draw as they do in a terminal, through Textual's compositor into a driver that counts what would have
been written. Frames come at a fixed pace; CPU time is this process's, so what one frame costs is all of it:
the rows, the layout, the compositor, the escape sequences.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from infer_engine.protocol import RequestRow
from rich.text import Text
from textual.app import App, ComposeResult
from textual.drivers.headless_driver import HeadlessDriver
from textual.widget import Widget
from textual.widgets import DataTable, Static

from infer_console.state.picture import ReplicaPicture
from infer_console.ui.benchmark import pictures
from infer_console.ui.themes import DEFAULT, Theme, load_themes
from infer_console.ui.widgets.canvas import Canvas
from infer_console.view.blockmap import block_section
from infer_console.view.look import Look
from infer_console.view.roster import LEAD, columns, roster_section
from infer_console.view.row import Row
from infer_console.view.table import Fitted, fit_columns

WIDTH, ROSTER_HEIGHT, MAP_HEIGHT = 120, 67, 40
FRAMES = 30
PERIOD_S = 0.05
START_S = 60.0
POOLS = (1_024, 31_250)


class CountingDriver(HeadlessDriver):
    """To Textual it is a terminal; all that it does is count."""

    written_bytes = 0

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        CountingDriver.written_bytes += len(data.encode())


class OneWidget(App[None]):
    def __init__(self, widget: Widget) -> None:
        super().__init__(driver_class=CountingDriver, ansi_color=True)
        self.widget = widget

    def compose(self) -> ComposeResult:
        yield self.widget


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one frame."""

    bytes: float
    cpu_ms: float


async def cost(widget: Widget, paint: Callable[[int], None], height: int, frames: int) -> Cost:
    """Of ``paint(1)`` to ``paint(frames)``, after ``paint(0)``."""
    app = OneWidget(widget)
    running = asyncio.create_task(app.run_async(size=(WIDTH, height), mouse=False))
    try:
        async with asyncio.timeout(START_S):
            while not (widget.is_mounted and app.size.height == height):
                if running.done():
                    running.result()
                await asyncio.sleep(PERIOD_S)
        paint(0)
        await asyncio.sleep(4 * PERIOD_S)
        written, used_s = CountingDriver.written_bytes, time.process_time()
        for frame in range(1, frames + 1):
            paint(frame)
            await asyncio.sleep(PERIOD_S)
        await _drawn(written)
        used_s = time.process_time() - used_s
        written = CountingDriver.written_bytes - written
    finally:
        app.exit()
        await asyncio.wait_for(running, START_S)
    return Cost(written / frames, 1000 * used_s / frames)


async def _drawn(since: int) -> None:
    """Once anything was: a busy machine draws later than it is asked to."""
    async with asyncio.timeout(START_S):
        while CountingDriver.written_bytes == since:  # noqa: ASYNC110 - the driver has no event for it
            await asyncio.sleep(PERIOD_S)


# --- what is painted: ours, then Textual's own -------------------------------------------------------------


def _canvas(rows: Callable[[int], list[Row]], theme: Theme) -> tuple[Widget, Callable[[int], None]]:
    canvas = Canvas(theme)
    return canvas, lambda frame: _ignore(canvas.show(rows(frame)))


def _roster_rows() -> Callable[[int], list[Row]]:
    look = Look()

    def rows(frame: int) -> list[Row]:
        replica = pictures.batch(frame)
        look.owners.update("r0", list(replica.rows))
        return roster_section(replica, look, WIDTH, ROSTER_HEIGHT)

    return rows


def _map_rows(total: int) -> Callable[[int], list[Row]]:
    look, made = Look(), [pictures.pool(frame, total) for frame in range(4)]

    def rows(frame: int) -> list[Row]:
        replica = made[frame % len(made)]
        look.owners.update("r0", list(replica.rows))
        return block_section(replica, look, WIDTH, MAP_HEIGHT)

    return rows


def _data_table() -> tuple[Widget, Callable[[int], None]]:
    """Only the cells that changed are updated, as its documentation advises."""
    table: DataTable[str] = DataTable()
    shown: dict[tuple[int, int], str] = {}

    def of(replica: ReplicaPicture) -> list[Fitted[RequestRow]]:
        """The columns that our roster shows at this width."""
        return fit_columns(columns(replica, {}, None, WIDTH), WIDTH - LEAD)

    def cells(replica: ReplicaPicture) -> list[list[str]]:
        shows = [fitted.column.show for fitted in of(replica)]
        return [[str(show(row).text) for show in shows] for row in replica.rows.values()]

    def paint(frame: int) -> None:
        replica = pictures.batch(frame)
        if not table.columns:
            for number, column in enumerate(of(replica)):
                table.add_column(column.column.head, key=str(number))
            for number, row in enumerate(cells(replica)):
                table.add_row(*row, key=str(number))
        for y, row in enumerate(cells(replica)):
            for x, text in enumerate(row):
                if shown.get((y, x)) != text:
                    shown[y, x] = text
                    table.update_cell(str(y), str(x), text)

    return table, paint


def _static(rows: Callable[[int], list[Row]], theme: Theme) -> tuple[Widget, Callable[[int], None]]:
    """The same cells in the same styles as one text."""
    widget = Static()

    def paint(frame: int) -> None:
        lines = [
            Text.assemble(*((str(span.text), theme.style(span.role, span.tone)) for span in row))
            for row in rows(frame)
        ]
        widget.update(Text("\n").join(lines))

    return widget, paint


def _ignore(_: object) -> None:
    """The value of what was done is not wanted."""


# --- results -----------------------------------------------------------------------------------------------


def measure(repeats: int) -> list[dict[str, Any]]:
    """Results of the bench document; ratios are ours over Textual's."""
    theme = load_themes()[DEFAULT]
    made: list[dict[str, Any]] = []
    roster = _roster_rows()
    made += _beside(
        "roster of 64 rows",
        "Textual's DataTable",
        lambda: _canvas(roster, theme),
        _data_table,
        (ROSTER_HEIGHT, repeats, FRAMES),
    )
    for total in POOLS:
        rows = _map_rows(total)
        made += _beside(
            f"block map of {total:,} blocks",
            "Textual's Static",
            lambda rows=rows: _canvas(rows, theme),
            lambda rows=rows: _static(rows, theme),
            (MAP_HEIGHT, repeats, FRAMES),
        )
    return made


Maker = Callable[[], tuple[Widget, Callable[[int], None]]]


def _beside(
    what: str, peer: str, ours: Maker, theirs: Maker, how: tuple[int, int, int]
) -> list[dict[str, Any]]:
    height, repeats, frames = how
    costs: dict[str, list[Cost]] = {"ours": [], "theirs": []}
    for _ in range(repeats):
        for whose, maker in (("ours", ours), ("theirs", theirs)):
            # Widgets belong to the event loop that they were made in.
            costs[whose].append(asyncio.run(_cost_of(maker, height, frames)))
    return [
        *_results(f"{what}: bytes a frame", "bytes", peer, *_pick(costs, lambda cost: cost.bytes)),
        *_results(f"{what}: CPU time a frame", "ms", peer, *_pick(costs, lambda cost: cost.cpu_ms)),
    ]


async def _cost_of(maker: Maker, height: int, frames: int) -> Cost:
    return await cost(*maker(), height, frames)


def _pick(costs: dict[str, list[Cost]], of: Callable[[Cost], float]) -> Iterable[list[float]]:
    return ([of(each) for each in costs[whose]] for whose in ("ours", "theirs"))


def _results(
    measure: str, unit: str, peer: str, ours: list[float], theirs: list[float]
) -> list[dict[str, Any]]:
    def result(
        subject: str, samples: list[float], against: str | None, ratio: float | None
    ) -> dict[str, Any]:
        return {
            "measure": measure,
            "value": median(samples),
            "unit": unit,
            "against": against,
            "ratio": ratio,
            "wanted": None,
            "met": None,
            "bound": "most",
            "samples": samples,
            "subject": subject,
            "part": "console",
            "note": None,
        }

    ratio = median(ours) / median(theirs) if median(theirs) else None
    return [result("infer-console", ours, peer, ratio), result(peer, theirs, None, None)]
