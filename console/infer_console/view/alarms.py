"""Alarm lines: what is wrong, where, since when."""

import re

from infer_engine.protocol import Alarm
from msgspec import structs

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
#: Of replicas that have the same alarm.
MOST_NAMED = 3
_FIGURES = re.compile(r"[0-9][0-9.,]*")
#: A text that says itself for how long.
_LASTS = re.compile(r" for [0-9.]+[smhd]")


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


def shown_alarms(picture: Picture, replica: str | None = None) -> dict[int, Alarm]:
    """Those that concern a replica, its own and the fleet's, or all of them: of those that several replicas
    have the gravest names the others, or one trouble of many would hide all else. By their number, which is
    the one that is stepped through."""
    numbered = dict(enumerate(ordered_alarms(picture), 1))
    if replica is not None:
        return dict(enumerate((each for each in numbered.values() if each.replica in (replica, None)), 1))
    alike: dict[tuple[str | None, ...], list[int]] = {}
    for number, alarm in numbered.items():
        # Two that failed of different causes are two.
        words = _FIGURES.sub("", alarm.text.split("; ", 1)[0])
        alone = None if alarm.replica else str(number)
        # What is proposed for each replica is one proposal where it is the same.
        action = (alarm.action or "").removeprefix(f"{alarm.replica}: ")
        key = (alarm.rule, alarm.severity, action, words, alone)
        alike.setdefault(key, []).append(number)
    return {numbers[0]: _together([numbered[number] for number in numbers]) for numbers in alike.values()}


def _together(same: list[Alarm]) -> Alarm:
    """The first, naming the replicas of the others."""
    if len(same) == 1:
        return same[0]
    others = [alarm.replica or "" for alarm in same[1:]]
    more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
    cause, ends, rest = same[0].text.partition("; ")
    named = f"{cause}; likewise {', '.join(others[:MOST_NAMED])}{more}{ends}{rest}"
    return structs.replace(same[0], text=named)


def alarm_lines(picture: Picture, width: int, replica: str | None = None) -> int:
    """Rows in which every alarm is told whole: an action that does not fit beside its text has its own."""
    return sum(1 if _fits(alarm, width) else 2 for alarm in shown_alarms(picture, replica).values())


def alarm_rows(picture: Picture, width: int, height: int, replica: str | None = None) -> list[Row]:
    """At most ``height`` lines; the last one counts what did not fit. Where an action has no row of its own,
    the cause (the text up to its first ``;``) comes before it, and it before the rest of the text."""
    alarms = shown_alarms(picture, replica)
    rows: list[Row] = []
    if height == 1 and len(alarms) > 1:
        first = next(iter(alarms.values()))
        return [_alarm_row(first, f"1/{len(alarms)}", width, _tail(first))]
    shown = list(alarms.items())[: height if len(alarms) <= height else max(0, height - 1)]
    spare = height - len(shown) - (1 if len(alarms) > len(shown) else 0)
    for number, alarm in shown:
        if _fits(alarm, width) or spare <= 0:
            rows.append(_alarm_row(alarm, str(number), width, _tail(alarm)))
            continue
        spare -= 1
        rows += _two_rows(alarm, str(number), width)
    if len(alarms) > len(shown) and height > 0:
        rows.append(
            Line(width)
            .put(safe(f"   and {len(alarms) - len(shown)} more alarms, ! steps through them"), "warn")
            .row()
        )
    return rows


def _two_rows(alarm: Alarm, number: str, width: int) -> list[Row]:
    """The text goes on in the second row, before the action."""
    where, text, tail = _where(alarm), safe(alarm.text, 400), _tail(alarm)
    room = max(1, width - 6 - len(_since(alarm)) - (len(where) + 2 if where else 0))
    stop = len(text)
    if stop > room:
        blank = text.rfind(" ", 0, room + 1)
        stop = blank if blank > room // 2 else room
    first = _alarm_row(structs.replace(alarm, text=text[:stop]), number, width, safe(""))
    line, rest = Line(width).to(5), text[stop:].strip()
    if rest:
        line.put(safe(rest, max(8, line.left - len(tail) - 2))).put("  ")
    return [first, line.put(tail, "accent").row()]


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
    return safe(" ") if _LASTS.search(alarm.text.split("; ", 1)[0]) else safe(f" · {stood} ")


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
