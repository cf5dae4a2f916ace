"""How a cell is drawn: colours and attributes as the numbers of ``CSI … m``, and the shortest way from one
to the next."""

from functools import lru_cache
from typing import NamedTuple

from rich.color import ColorSystem
from rich.style import Style

from infer_console.terminal.legible import downgraded

RESET = "\x1b[m"
#: What turns an attribute off again; bold and dim share theirs.
_OFF = {1: 22, 2: 22, 3: 23, 4: 24, 5: 25, 7: 27, 8: 28, 9: 29}
_MAX_KEPT = 4096


class Pen(NamedTuple):
    """``attributes`` are SGR numbers; a colour is its SGR parameters, empty where the terminal's own."""

    attributes: tuple[int, ...] = ()
    foreground: str = ""
    background: str = ""


PLAIN = Pen()


@lru_cache(_MAX_KEPT)
def pen_of(style: Style | None, colors: ColorSystem) -> Pen:
    """The pen of a style on a terminal with so many colours."""
    if style is None:
        return PLAIN
    given = (
        (1, style.bold),
        (2, style.dim),
        (3, style.italic),
        (4, style.underline),
        (5, style.blink),
        (7, style.reverse),
        (8, style.conceal),
        (9, style.strike),
    )
    foreground = background = ""
    if style.color is not None and not style.color.is_default:
        color = downgraded(style.color, style.bgcolor, colors)
        foreground = ";".join(color.get_ansi_codes(foreground=True))
    if style.bgcolor is not None and not style.bgcolor.is_default:
        background = ";".join(style.bgcolor.downgrade(colors).get_ansi_codes(foreground=False))
    return Pen(tuple(number for number, on in given if on), foreground, background)


@lru_cache(_MAX_KEPT)
def change_pen(before: Pen, after: Pen) -> str:
    """The escape sequence that makes ``before`` into ``after``; empty where they are the same."""
    if before == after:
        return ""
    if after == PLAIN:
        return RESET
    codes: list[str] = []
    off = {_OFF[number] for number in before.attributes if number not in after.attributes}
    codes += map(str, sorted(off))
    # What was turned off together with another one is turned on again.
    codes += [
        str(number) for number in after.attributes if number not in before.attributes or _OFF[number] in off
    ]
    if before.foreground != after.foreground:
        codes.append(after.foreground or "39")
    if before.background != after.background:
        codes.append(after.background or "49")
    return f"\x1b[{';'.join(codes)}m"
