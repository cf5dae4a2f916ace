"""The size of the terminal, asked for now and then.

A signal that says it changed can be lost on its way through tmux and ssh, and a screen that is just being
opened can miss the word of it; what was drawn for another size would stay until the next change.
"""

from typing import Any

from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.geometry import Size


def follow_size(app: Any) -> None:
    """Have everything laid out anew where it is not of the size that the terminal has."""
    driver = getattr(app, "_driver", None)
    if not isinstance(driver, LinuxDriver) or getattr(driver, "_in_band_window_resize", False):
        return  # in a browser, or where the terminal itself tells each size
    columns, rows = getattr(driver, "_get_terminal_size")()  # noqa: B009 - Textual has no public way to ask
    size = Size(columns, rows)
    if app.size != size or app.screen._compositor.size != size:
        app.post_message(Resize(size, size))
