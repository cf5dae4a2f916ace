"""SIGCONT, which comes also where nothing was suspended: ``timeout`` and systemd send it behind SIGTERM, and
an operator behind SIGSTOP.

Textual's driver takes every one for the end of a Ctrl+Z and begins anew beside what still runs: two threads
read the keys, the first of which nobody ends, and what is put back in the end is a raw terminal."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


def resume_what_was_suspended(driver: Any, otherwise: Callable[[], None]) -> None:
    """After a Ctrl+Z the driver's own handler goes on; at any other time ``otherwise`` is called, in a signal
    handler. Only the main thread can have handlers; elsewhere nothing happens.

    It reads a private attribute of Textual's driver; a test pins that it is there.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    resume = signal.getsignal(signal.SIGCONT)
    if not callable(resume) or not hasattr(driver, "_must_signal_resume"):
        return

    def continued(number: int, frame: FrameType | None) -> None:
        if driver._must_signal_resume:
            resume(number, frame)
        else:
            otherwise()

    signal.signal(signal.SIGCONT, continued)
