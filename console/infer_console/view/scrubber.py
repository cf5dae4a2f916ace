"""The row of time: what span can be shown, what stands out in it, and which moment is shown."""

from collections.abc import Mapping
from dataclasses import dataclass

from infer_console.past.marks import Mark, MarkKind
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import UNKNOWN, age, clock
from infer_console.view.row import Line, Role, Row, Shown

#: Where several marks fall into one cell, the first of these is shown.
_ROLES: Mapping[MarkKind, Role] = {
    "critical": "crit",
    "server": "notice",
    "action": "act",
    "setting": "accent",
    "own": "key",
    "warning": "warn",
}
_RANKS: dict[MarkKind, int] = {kind: rank for rank, kind in enumerate(_ROLES)}
HINTS: Shown = safe("[ ] 5s  { } 1m  ( ) marks  m mark  e export")
#: From this width on the row says what its keys do.
WIDE = 110


@dataclass(frozen=True, slots=True)
class Scrub:
    """Where in time the operator looks. Moments are Unix seconds of the server's clock."""

    #: What the track shows.
    from_at: float
    to_at: float
    at: float
    #: ``to_at`` is a live stream's end, or a recording's.
    live: bool
    #: Another moment than the newest is shown.
    past: bool = True
    #: What was asked for, while it is fetched.
    wanted_at: float | None = None
    marks: tuple[Mark, ...] = ()
    #: A recording is being played, so many seconds in one.
    speed: float | None = None
    #: What is fetched or why not; not yet safe to print.
    note: str = ""


def scrub_row(scrub: Scrub, width: int) -> Row:
    line = Line(width).put(" TIME ", "label").put(_short(scrub.from_at), "dim").put(" ")
    end: Shown = "now" if scrub.live else _short(scrub.to_at)
    after: Shown = safe(scrub.note, 40) if scrub.note else HINTS if width >= WIDE else ""
    cells = max(1, line.left - len(end) - 2 - (len(after) + 2 if after else 0))
    for sign, role in _track(scrub, cells):
        line.put(safe(sign), role)
    line.put(" ").put(end, "dim")
    return line.right(after, "warn" if scrub.note else "dim").row()


def until(scrub: Scrub | None) -> Shown:
    """What a time axis ends with: it is the moment that is shown."""
    return "now" if scrub is None else _short(scrub.at)


def moment_word(scrub: Scrub) -> tuple[SafeText, Role]:
    """``PAST 03:05:10Z (-6m10s)``, for the banner."""
    if not scrub.live:
        state = f"▶ ×{scrub.speed:g}" if scrub.speed is not None else "‖"
        # Before anything was read there is no moment yet.
        return safe(f"REPLAY {clock(scrub.at) if scrub.at else UNKNOWN} {state}"), "warn"
    behind = age(scrub.to_at - scrub.at)
    if scrub.past:
        return safe(f"PAST {clock(scrub.at)} (-{behind})"), "warn"
    return safe(f"PAUSED {behind} ago"), "warn"


def _track(scrub: Scrub, cells: int) -> list[tuple[str, Role]]:
    track: list[tuple[str, Role]] = [("─", "rule")] * cells
    ranks = [len(_RANKS)] * cells
    for mark in scrub.marks:
        if scrub.from_at <= mark.at <= scrub.to_at:
            cell = _cell(scrub, mark.at, cells)
            if _RANKS[mark.kind] < ranks[cell]:
                ranks[cell] = _RANKS[mark.kind]
                track[cell] = mark.sign[:1] or "?", _ROLES[mark.kind]
    if scrub.wanted_at is not None:
        track[_cell(scrub, scrub.wanted_at, cells)] = "○", "accent"
    track[_cell(scrub, scrub.at, cells)] = "●", "strong"
    return track


def _cell(scrub: Scrub, at: float, cells: int) -> int:
    span_s = max(1e-9, scrub.to_at - scrub.from_at)
    return max(0, min(cells - 1, int((at - scrub.from_at) / span_s * cells)))


def _short(at: float) -> SafeText:
    return safe(clock(at)[:5])
