"""How the console draws and calls for attention, as the operator and the terminal want it."""

from dataclasses import dataclass

from infer_console.terminal.link import FASTEST_HZ, LinkMode


@dataclass(frozen=True, slots=True)
class Display:
    fps: float = FASTEST_HZ
    link: LinkMode = "auto"
    ascii_only: bool = False
    #: Ring, and set the window's title, when something critical is new.
    bell: bool = True
    title: bool = True
    #: tmux is between the console and the terminal.
    tmux: bool = False


DEFAULT_DISPLAY = Display()
