"""Whether the terminal keeps up. Textual queues what it writes, and once that queue is full it stops the
event loop, so frames are left out well before."""

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
