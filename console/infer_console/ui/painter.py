"""What Textual's compositor rendered, brought to the terminal: only cells that changed, no more than the link
bears.

Textual writes every widget that it repaints anew, whether it looks different or not, and hands it over in one
call, ``App._display``. The console takes that call over.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.color import ColorSystem
from rich.segment import Segment
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.strip import Strip

from infer_console.terminal.cells import Cells, append_text
from infer_console.terminal.frame import SYNC_BEGIN, SYNC_END, Frame
from infer_console.terminal.link import QUESTION, LinkBudget
from infer_console.terminal.pen import pen_of

Update = LayoutUpdate | ChopsUpdate


class Painter:
    """Owns the picture of what the terminal shows. Lives on the event loop's thread."""

    def __init__(self, link: LinkBudget, *, colors: ColorSystem) -> None:
        self.link = link
        self._colors = colors
        self._frame: Frame | None = None
        #: Tells the rank of every row; the lowest go first when not all fit into a frame.
        self.ranks: Callable[[], Sequence[float]] = tuple
        #: Bytes of frames written since the start.
        self.written_bytes = 0

    @property
    def frame(self) -> Frame | None:
        return self._frame

    @property
    def complete(self) -> bool:
        return self._frame is None or self._frame.complete

    def take(self, update: Update, width: int, height: int) -> None:
        """What the compositor wants to be shown on a screen of that size."""
        frame = self._frame
        if frame is None or (frame.width, frame.height) != (width, height):
            frame = self._frame = Frame(width, height)
        if isinstance(update, LayoutUpdate):
            for y, strips in enumerate(update.strips, update.region.y):
                frame.put(update.region.x, y, self._cells(strips))
            return
        chops: Sequence[Mapping[int, Strip | None]] = update.chops
        # The whole of every chop: some widgets count on what is left of the dirty span being painted too.
        for y in {y for y, _, _ in update.spans}:
            for x, strip in chops[y].items():
                if strip is not None:
                    frame.put(x, y, self._cells((strip,)))

    def forget(self) -> None:
        """What the terminal shows is not known any more: its size changed, or it was cleared."""
        if self._frame is not None:
            self._frame.forget()

    def flush(self, write: Callable[[str], None], *, queued: int, urgent: bool, synchronised: bool) -> bool:
        """Write what is missing, if the link is ready for it; returns whether the terminal will be up to date
        then."""
        if self.complete or self._frame is None:
            return True
        if not self.link.ready(queued, urgent):
            return False
        budget_bytes = None if urgent else self.link.budget_bytes
        ranks = self.ranks() if budget_bytes is not None else ()
        painted = self._frame.paint(budget_bytes, lambda y: ranks[y] if y < len(ranks) else 0.0)
        if painted.text:
            text = f"{SYNC_BEGIN}{painted.text}{SYNC_END}" if synchronised else painted.text
            if self.link.asks:
                text += QUESTION
            size_bytes = len(text.encode())
            self.written_bytes += size_bytes
            self.link.written(time.monotonic(), size_bytes)
            write(text)
        return painted.complete

    def _cells(self, strips: Iterable[Strip]) -> Cells:
        cells: Cells = []
        for strip in strips:
            for segment in strip:
                _append(cells, segment, self._colors)
        return cells


def _append(cells: Cells, segment: Segment, colors: ColorSystem) -> None:
    text, style, control = segment
    if not control:
        append_text(cells, text, pen_of(style, colors))
