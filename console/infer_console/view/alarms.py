"""Alarm lines: what is wrong, where, since when."""

from infer_engine.protocol import Alarm

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import safe, safe_identifier
from infer_console.view.format import age
from infer_console.view.row import Line, Role, Row, Shown

CRITICAL = "▲"
WARNING = "△"


def alarm_sign(alarm: Alarm) -> tuple[Shown, Role]:
    return (CRITICAL, "crit") if alarm.severity == "critical" else (WARNING, "warn")


def worst_alarm(picture: Picture, replica: str) -> Alarm | None:
    """The gravest alarm of a replica."""
    mine = [alarm for alarm in picture.alarms if alarm.replica == replica]
    return min(mine, key=lambda alarm: alarm.severity != "critical", default=None)


def ordered_alarms(picture: Picture) -> list[Alarm]:
    """Critical ones first, otherwise as the server lists them."""
    return sorted(picture.alarms, key=lambda alarm: alarm.severity != "critical")


def alarm_rows(picture: Picture, width: int, height: int, replica: str | None = None) -> list[Row]:
    """At most ``height`` lines; the last one counts what did not fit."""
    alarms = [alarm for alarm in ordered_alarms(picture) if replica is None or alarm.replica == replica]
    rows: list[Row] = []
    shown = alarms if len(alarms) <= height else alarms[: max(0, height - 1)]
    for number, alarm in enumerate(shown, 1):
        sign, role = alarm_sign(alarm)
        line = Line(width).put(" ").put(sign, role).put(safe(f" {number} "), role)
        if alarm.replica is not None and not alarm.text.startswith(alarm.replica):
            line.put(safe_identifier(alarm.replica), "strong").put(": ")
        since = safe(f" {age(alarm.since_s)} ") if alarm.since_s is not None else safe(" ")
        tail = safe(f"→ {alarm.action} ", 48) if alarm.action else safe("")
        line.put(safe(alarm.text, max(0, line.left - len(since) - len(tail) - 1)), "text").put(since, "dim")
        rows.append(line.right(tail, "accent").row())
    if len(alarms) > len(shown) and height > 0:
        rows.append(
            Line(width)
            .put(safe(f"   and {len(alarms) - len(shown)} more alarms, ! steps through them"), "warn")
            .row()
        )
    return rows
