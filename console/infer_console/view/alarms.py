"""Alarm lines: what is wrong, where, since when."""

from infer_engine.protocol import Alarm

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, fit_text, safe, safe_identifier
from infer_console.view.format import age
from infer_console.view.row import Line, Role, Row, Shown

CRITICAL = "▲"
WARNING = "△"
NOTICE = "○"
_SIGNS: dict[str, tuple[Shown, Role]] = {
    "critical": (CRITICAL, "crit"),
    "warning": (WARNING, "warn"),
    "notice": (NOTICE, "label"),
}
_GRAVITY = {severity: place for place, severity in enumerate(_SIGNS)}
#: Of an action less than this says nothing.
LEAST_ACTION = 12


def alarm_sign(alarm: Alarm) -> tuple[Shown, Role]:
    return _SIGNS[alarm.severity]


def gravity(alarm: Alarm) -> int:
    """0 is the worst."""
    return _GRAVITY[alarm.severity]


def worst_alarms(picture: Picture) -> dict[str, Alarm]:
    """The gravest alarm of each replica that has one; a notice is none."""
    worst: dict[str, Alarm] = {}
    for alarm in picture.alarms:
        before = worst.get(alarm.replica or "")
        graver = before is None or gravity(alarm) < gravity(before)
        if alarm.replica is not None and graver and alarm.severity != "notice":
            worst[alarm.replica] = alarm
    return worst


def ordered_alarms(picture: Picture) -> list[Alarm]:
    """The gravest first, otherwise as the server lists them."""
    return sorted(picture.alarms, key=gravity)


def shown_alarms(picture: Picture, replica: str | None = None) -> list[Alarm]:
    """All of them, or those that concern a replica: its own and the fleet's."""
    return [alarm for alarm in ordered_alarms(picture) if replica is None or alarm.replica in (replica, None)]


def alarm_lines(picture: Picture, width: int, replica: str | None = None) -> int:
    """Rows in which every alarm is told whole: an action that does not fit beside its text has its own."""
    return sum(1 if _fits(alarm, width) else 2 for alarm in shown_alarms(picture, replica))


def alarm_rows(picture: Picture, width: int, height: int, replica: str | None = None) -> list[Row]:
    """At most ``height`` lines; the last one counts what did not fit. Where an action has no row of its own,
    the cause (the text up to its first ``;``) comes before it, and it before the rest of the text."""
    alarms = shown_alarms(picture, replica)
    rows: list[Row] = []
    if height == 1 and len(alarms) > 1:
        return [_alarm_row(alarms[0], f"1/{len(alarms)}", width, _tail(alarms[0]))]
    shown = alarms if len(alarms) <= height else alarms[: max(0, height - 1)]
    spare = height - len(shown) - (1 if len(alarms) > len(shown) else 0)
    for number, alarm in enumerate(shown, 1):
        if _fits(alarm, width) or spare <= 0:
            rows.append(_alarm_row(alarm, str(number), width, _tail(alarm)))
            continue
        spare -= 1
        rows.append(_alarm_row(alarm, str(number), width, safe("")))
        rows.append(Line(width).to(5).put(_tail(alarm), "accent").row())
    if len(alarms) > len(shown) and height > 0:
        rows.append(
            Line(width)
            .put(safe(f"   and {len(alarms) - len(shown)} more alarms, ! steps through them"), "warn")
            .row()
        )
    return rows


def _fits(alarm: Alarm, width: int) -> bool:
    """Whether text, age and action stand in one row."""
    tail = len(_tail(alarm))
    where = len(_where(alarm)) + 2 if _where(alarm) else 0
    return tail == 0 or 5 + where + len(safe(alarm.text, 400)) + len(_since(alarm)) + tail + 1 <= width


def _where(alarm: Alarm) -> SafeText:
    if alarm.replica is None or alarm.text.startswith(alarm.replica):
        return safe("")
    return safe_identifier(alarm.replica)


def _since(alarm: Alarm) -> SafeText:
    """How long it has stood, ``≥`` where its start was not seen; nothing where the text says it."""
    if alarm.since_s is not None:
        stood = age(alarm.since_s)
    elif alarm.at_least_s is not None:
        stood = safe(f"≥{age(alarm.at_least_s)}")
    else:
        return safe(" ")
    return safe(" ") if " for " in alarm.text[:24] else safe(f" {stood} ")


def _tail(alarm: Alarm) -> SafeText:
    return safe(f"→ {alarm.action} ", 100) if alarm.action else safe("")


def _alarm_row(alarm: Alarm, number: str, width: int, tail: SafeText) -> Row:
    sign, role = alarm_sign(alarm)
    line = Line(width).put(" ").put(sign, role).put(safe(f" {number} "), role)
    where, since = _where(alarm), _since(alarm)
    if where:
        line.put(where, "strong").put(": ")
    least = len(safe(alarm.text.split("; ", 1)[0])) + 1
    room = max(0, line.left - len(since) - 1)
    line.put(safe(alarm.text, min(room, max(least, room - len(tail)))), "text").put(since, "dim")
    return line.right(fit_text(tail, line.left - 1) if line.left > LEAST_ACTION else safe(""), "accent").row()
