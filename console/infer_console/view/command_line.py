"""The command line at the bottom of the screen, and the palette over its middle."""

import textwrap
from collections.abc import Sequence

from infer_console.commands.complete import Found
from infer_console.commands.known import Known
from infer_console.commands.line import CommandLine
from infer_console.terminal.safe_text import safe
from infer_console.view.box import box, titled
from infer_console.view.layout import window
from infer_console.view.row import Line, Row, Shown

#: Rows that an error may take of the screen above the line.
MOST_ERROR_ROWS = 4
PROMPT: Shown = ":"
#: A palette is no wider.
MOST_CELLS = 84


def command_rows(line: CommandLine, known: Known, width: int) -> list[Row]:
    """What goes over the last rows of the screen: an error or what the next word may be, then the line."""
    above = _error_rows(line.error, width) if line.error else [_hint_row(line, known, width)]
    return [*above, _typed_row(line, width)]


def _typed_row(line: CommandLine, width: int) -> Row:
    """The part of the line around the place where the next character goes."""
    room = max(4, width - len(PROMPT) - 2)
    first = max(0, line.at - room)
    made = Line(width, "bar").put(PROMPT, "accent").put(safe(line.text[first : line.at], room), "strong")
    made.put("▏", "accent").put(safe(line.text[line.at : first + room], room), "strong")
    return made.right(" enter: do  esc: leave ", "dim").row()


def _hint_row(line: CommandLine, known: Known, width: int) -> Row:
    usage, offered, chosen = line.hint(known)
    made = Line(width, "bar").put(" ")
    if usage:
        made.put(safe(usage, max(10, width * 2 // 3 if offered else width)), "dim").put("  ")
    first = offered.index(chosen) if chosen in offered else 0
    words = offered[max(0, first - 1) :]
    for place, word in enumerate(words):
        more = safe(f"… {len(words) - place} more")
        if place and made.left < len(safe(word, 48)) + (len(more) + 3 if place + 1 < len(words) else 1):
            made.put(more, "dim")
            break
        made.put(safe(word, 48), "accent" if word == chosen else "label").put("  ")
    return made.row()


def _error_rows(error: str, width: int) -> list[Row]:
    pieces = textwrap.wrap(safe(error, 600), max(8, width - 2))[:MOST_ERROR_ROWS]
    return [Line(width, "bar").put(" ").put(safe(piece), "crit").row() for piece in pieces]


def palette_rows(search: str, found: Sequence[Found], at: int, width: int, height: int) -> list[Row]:
    """A framed box: what is searched for, and the commands that fit. What the chosen one does is told whole,
    on a second row where it needs one."""
    outer = max(20, min(MOST_CELLS, width - 2))
    inner = outer - 4
    room = max(1, min(16, height - 6))
    typed = Line(inner, "dialog").put("› ", "accent").put(safe(search), "strong").put("▏", "accent")
    rows = [typed.row()]
    names = max((len(safe(each.line, 40)) for each in found), default=0)
    column = min(names + 6, inner // 2)
    chosen = _told(found[at], column, inner) if at < len(found) else []
    shown = window(len(found), max(1, room - len(chosen[1:])), at)
    for index in shown:
        rows += chosen if index == at else _told(found[index], column, inner, chosen=False)
    if not found:
        rows.append(Line(inner, "dialog").put("no command is like this", "dim").row())
    rows += [Line(inner, "dialog").row()] * (room + 1 - len(rows))
    return box(titled(outer, "Commands"), rows, " enter: do  esc: close ")


def _told(each: Found, column: int, width: int, chosen: bool = True) -> list[Row]:
    """A command and what it does: of the chosen one all of it."""
    line = Line(width, "cursor" if chosen else "dialog").put("▸ " if chosen else "  ", "accent")
    line.put(safe(each.line, 40), "strong" if each.whole else "text").put("" if each.whole else " …", "dim")
    line.to(column)
    room = max(8, width - column)
    words = textwrap.wrap(safe(each.help), room)[:2] if chosen else [safe(each.help)]
    rows = [line.put(safe(words[0] if words else ""), "dim").row()]
    return rows + [Line(width, "cursor").to(column).put(safe(more), "dim").row() for more in words[1:]]
