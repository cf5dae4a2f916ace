"""How a console draws for a browser: packets on its stdout, as textual-serve wants them, through a queue of
its own. Textual's own driver writes them where the screens live, so a browser that stops reading would stop
all of the console; here it costs frames, as a terminal that hangs does."""

import asyncio
import contextlib
import os
import signal
import threading
from queue import Queue
from typing import Any

from textual.drivers.web_driver import WebDriver

#: As many as Textual's own for a terminal. Frames are left out well before it is full.
MOST_QUEUED = 30
#: Textual asks for it in any case.
NO_MOUSE = "\x1b[?1003l"


class PacketWriter(threading.Thread):
    """Where nobody reads any more, and never will, the console is told to end."""

    def __init__(self, handle: int) -> None:
        super().__init__(daemon=True, name="web-output")
        self._queue: Queue[bytes | None] = Queue(MOST_QUEUED)
        self._handle = handle

    def write(self, packet: bytes) -> None:
        """Take one whole packet. Waits where the queue is full."""
        self._queue.put(packet)

    def stop(self) -> None:
        """What was taken is written first: it may last until the reader is gone."""
        self._queue.put(None)
        self.join()

    def run(self) -> None:
        while (packet := self._queue.get()) is not None:
            try:
                while packet:
                    packet = packet[os.write(self._handle, packet) :]
            except OSError:
                hang_up()
                break
        while self._queue.get() is not None:
            pass  # nobody waits for a place in the queue


class QueuedWebDriver(WebDriver):
    """The page that is gone is a line that is lost: a hang-up, which ends a console within a second."""

    def __init__(self, app: Any, *, debug: bool = False, mouse: bool = True, size: Any = None) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._writer_thread = PacketWriter(self.fileno)
        self._write = self._writer_thread.write

    def start_application_mode(self) -> None:
        self._writer_thread.start()
        handler = signal.getsignal(signal.SIGTERM)
        super().start_application_mode()
        # Textual's own way to end on a signal waits for what a browser has not read.
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, handler)
        if not self._mouse:
            self.write(NO_MOUSE)

    def _enable_mouse_support(self) -> None:
        """Where it is wanted: without, the page's text can be selected."""
        if self._mouse:
            super()._enable_mouse_support()

    def run_input_thread(self) -> None:
        """Until the console ends, or whoever draws for us has gone."""
        super().run_input_thread()
        if not self.exit_event.is_set():
            hang_up()

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        if packet_type == "quit":
            hang_up()
        else:
            super().on_meta(packet_type, payload)

    def close(self) -> None:
        self._writer_thread.stop()


def hang_up() -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(os.getpid(), signal.SIGHUP)
