"""Rows that stand some lines further down or up than before, as when an alarm comes or a feed goes on.

A narrow link cannot bear all of them anew at once, and half of them anew shows some rows twice and others not
at all. To move what the terminal shows already costs a dozen bytes.
"""

from collections.abc import Sequence
from operator import eq
from typing import NamedTuple

from infer_console.terminal.cells import Cells

#: Rows that move further than that are written anew.
_FURTHEST = 8
#: Moves in one frame at most: two feeds and what stands above them.
MOST = 4
#: Cells that a move has to spare, at least.
_LEAST_GAIN = 24


class Shift(NamedTuple):
    """Of the rows ``top`` up to, not with, ``bottom`` all go ``by`` lines down (up where negative); what is
    pushed out is lost, and as many rows at the other end are blank then."""

    top: int
    bottom: int
    by: int

    @property
    def blank(self) -> range:
        """The rows of which nothing is known afterwards."""
        return (
            range(self.top, self.top + self.by) if self.by > 0 else range(self.bottom + self.by, self.bottom)
        )

    def sequence(self) -> str:
        """The bytes: a region to scroll in, lines put in or taken out at its top, and the whole screen again.
        Where the cursor is afterwards is not known."""
        lines = f"{self.by}L" if self.by > 0 else f"{-self.by}M"
        return f"\x1b[{self.top + 1};{self.bottom}r\x1b[{self.top + 1}H\x1b[{lines}\x1b[r"


def best_shift(wanted: Sequence[Cells], shown: Sequence[Cells]) -> Shift | None:
    """The move after which most cells of ``shown`` are as they are wanted; None where it spares little."""
    stays = [_same(want, have) for want, have in zip(wanted, shown, strict=True)]
    best: tuple[int, Shift | None] = (_LEAST_GAIN, None)
    furthest = min(_FURTHEST, len(wanted) - 1)
    for by in (each for size in range(1, furthest + 1) for each in (size, -size)):
        start, stop = max(0, by), len(wanted) + min(0, by)
        gains = [_same(wanted[y], shown[y - by]) - stays[y] for y in range(start, stop)]
        first, last, gain = _best_run(gains)
        found = _region(start + first, start + last, by)
        gain -= sum(stays[y] for y in found.blank)
        if gain > best[0]:
            best = (gain, found)
    return best[1]


def _region(first: int, last: int, by: int) -> Shift:
    """What has to scroll for the rows ``first`` to ``last`` to be filled."""
    return Shift(first - max(0, by), last + 1 - min(0, by), by)


def _same(want: Cells, have: Cells) -> int:
    """Cells that need not be written."""
    return len(want) if want == have else sum(map(eq, want, have))


def _best_run(gains: Sequence[int]) -> tuple[int, int, int]:
    """The run with the largest sum: its first, its last and the sum."""
    best = (0, 0, gains[0])
    first, total = 0, 0
    for at, gain in enumerate(gains):
        if total <= 0:
            first, total = at, 0
        total += gain
        if total > best[2]:
            best = (first, at, total)
    return best
