"""Whether the terminal keeps up. Textual queues what it writes, and once that queue is full it stops the
event loop, so frames are left out well before."""

import contextlib
import select
import sys
from typing import Any

#: Writes not yet taken by the terminal from which on data frames are skipped (a frame is three of them).
DEEP = 3


def queued_writes(app: Any) -> int:
    """Writes waiting for the terminal; 0 where there is no writer thread (headless) or it cannot be seen.

    It reads private attributes of Textual's driver; a test pins that they are there.
    """
    writer = getattr(getattr(app, "_driver", None), "_writer_thread", None)
    queue = getattr(writer, "_queue", None)
    return queue.qsize() if queue is not None else 0


def is_behind(app: Any) -> bool:
    return queued_writes(app) > DEEP


def is_stuck(app: Any) -> bool:
    """Whether writes wait for the terminal, the one that is under way included: no queue shows that one."""
    return queued_writes(app) > 0 or not takes_more()


def takes_more() -> bool:
    """Whether the terminal, which is where Textual draws, would take a byte now; True where that cannot be
    asked."""
    terminal = sys.__stderr__
    if terminal is not None:
        with contextlib.suppress(OSError, ValueError):
            return bool(select.select([], [terminal], [], 0.0)[1])
    return True
