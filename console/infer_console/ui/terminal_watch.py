"""The terminal, asked for now and then: which size it has, and whether it is still there.

A signal that says its size changed can be lost on its way through tmux and ssh, and a screen that is just
being opened can miss the word of it; what was drawn for another size would stay until the next change. The
signal that says it is gone can be ignored by whoever started the program (``nohup``) while that starts; it
would go on for ever, for nobody.
"""

import errno
import termios
from typing import Any

from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.geometry import Size


def is_gone(app: Any) -> bool:
    """Its other end was closed: there is nobody to read, and never will be."""
    driver = getattr(app, "_driver", None)
    if not isinstance(driver, LinuxDriver):
        return False  # in a browser, which its own driver looks after
    try:
        termios.tcgetattr(driver.fileno)
    except termios.error as error:
        return error.args[0] == errno.EIO
    return False


def follow_size(app: Any) -> None:
    """Have everything laid out anew where it is not of the size that the terminal has."""
    driver = getattr(app, "_driver", None)
    if not isinstance(driver, LinuxDriver) or getattr(driver, "_in_band_window_resize", False):
        return  # in a browser, or where the terminal itself tells each size
    columns, rows = getattr(driver, "_get_terminal_size")()  # noqa: B009 - Textual has no public way to ask
    size = Size(columns, rows)
    if app.size != size or app.screen._compositor.size != size:
        app.post_message(Resize(size, size))
