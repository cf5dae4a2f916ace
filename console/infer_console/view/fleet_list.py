"""The fleets that a console is connected to: which number each has, and how it is."""

from collections.abc import Mapping

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import fit_text, safe
from infer_console.view.banner import link_word
from infer_console.view.box import box, titled
from infer_console.view.format import UNKNOWN, count
from infer_console.view.row import Line, Role, Row

WIDTH, NAME_CELLS = 76, 26


def fleet_rows(fleets: Mapping[str, Picture], shown: str, width: int, height: int, now: float) -> list[Row]:
    """A framed box. ``fleets`` by name, in the order of their numbers; ``shown`` is on the screens."""
    outer = max(24, min(WIDTH, width - 2))
    inner = outer - 4
    ours_s = fleets[shown].ahead_s if shown in fleets else 0.0  # ``now`` is of that one's clock
    body = [
        _row(number, name, picture, name == shown, inner, now + picture.ahead_s - ours_s)
        for number, (name, picture) in enumerate(fleets.items(), 1)
    ]
    keys = Line(inner, "dialog").put(safe(f"1-{len(fleets)}"), "key").put(" shows it  ", "dim")
    keys.put("ctrl+n", "key").put(" the next  ", "dim").put("esc", "key").put(" closes", "dim")
    body.append(keys.row())
    return box(titled(outer, "Fleets"), body)[:height]


def _row(number: int, name: str, picture: Picture, shown: bool, width: int, now: float) -> Row:
    line = Line(width, "dialog").put("▸ " if shown else "  ", "accent").put(safe(str(number)), "key").put(" ")
    line.put(" PROD " if picture.environment.production else "", "crit")
    name_role = "strong" if shown else "text"
    line.put(safe(name, max(8, min(NAME_CELLS, width - 44))), name_role).to(max(14, width - 42))
    line.put(*link_word(picture, now)).to(width - 30)
    totals = picture.totals
    if totals is None:
        why = fit_text(safe(picture.link.message), line.left)
        return line.put(why or UNKNOWN, "warn" if why else "dim").row()
    line.put(safe(f"{totals.ready}/{totals.replicas} "), "dim").put("RUN ", "label").put(
        count(totals.running)
    )
    line.put(" WAIT ", "label").put(count(totals.waiting)).put(" ")
    critical = sum(alarm.severity == "critical" for alarm in picture.alarms)
    warnings = len(picture.alarms) - critical
    told = [f"{critical}▲"] * bool(critical) + [f"{warnings}△"] * bool(warnings)
    role: Role = "crit" if critical else "warn" if warnings else "ok"
    return line.right(safe(" ".join(told) or "no alarm"), role).row()
