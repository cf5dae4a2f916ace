"""The pipe to the parent: when it ends, however the parent died, this process ends too."""

import os
import threading
from collections.abc import Callable

#: How long the process gets to end by itself.
GRACE_S = 1.0
#: Longest configuration line.
MAX_LINE_BYTES = 1 << 20


def read_line(descriptor: int) -> bytes:
    """One line, read byte by byte so that nothing after it is taken. ValueError when it ends early or
    never."""
    line = bytearray()
    while len(line) < MAX_LINE_BYTES:
        byte = os.read(descriptor, 1)
        if byte == b"\n":
            return bytes(line)
        if not byte:
            raise ValueError("stdin ended before the configuration line did")
        line += byte
    raise ValueError(f"the configuration line is longer than {MAX_LINE_BYTES} bytes")


def hold(descriptor: int, on_parent_gone: Callable[[], None]) -> None:
    """Watch ``descriptor`` from a thread of its own: at its end call ``on_parent_gone``, and ``GRACE_S``
    later end the process whatever it is doing."""

    def watch() -> None:
        while True:
            try:
                if not os.read(descriptor, 4096):
                    break
            except OSError:
                break
        on_parent_gone()
        threading.Event().wait(GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
