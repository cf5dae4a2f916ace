"""What happened on the time axis: alarms and actions, each a sign with a word."""

from typing import NamedTuple

from infer_engine.protocol import Operation

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.alarms import alarm_sign
from infer_console.view.row import Role, Shown

#: The letter of an operation is the key that asks for it, where there is one.
SIGNS: dict[str, Shown] = {
    "drain": "D",
    "undrain": "U",
    "fence": "F",
    "release": "U",
    "restart": "R",
    "scale": "S",
    "headroom": "H",
    "limits": "L",
    "tenant": "T",
    "inject": "I",
    "inject-stop": "I",
    "shed": "B",
    "cancel": "X",
    "cancel-where": "X",
    "preempt": "P",
}
OTHER = "●"
MOST_MARKS = 40


class Mark(NamedTuple):
    #: Unix seconds.
    at: float
    sign: Shown
    role: Role
    word: SafeText


def _word(operation: Operation) -> SafeText:
    """On what it was done; nothing where that is the whole fleet."""
    if operation.kind == "scale":
        return safe(f"to {operation.target}", 10)
    return safe("" if operation.target == "fleet" else operation.target, 10)


def marks(picture: Picture, replica: str | None = None) -> list[Mark]:
    """Beginnings of the alarms that stand and of the operations that are known, the latest last; of those
    that concern ``replica`` where one is given. Where there are too many, alarms before operations and the
    latest before the earliest."""
    alarms = [
        Mark(
            picture.at - alarm.since_s,
            *alarm_sign(alarm),
            safe_identifier(alarm.replica) if alarm.replica else safe(alarm.rule.replace("_", " "), 14),
        )
        for alarm in picture.alarms
        if alarm.since_s is not None and (replica is None or alarm.replica in (replica, None))
    ]
    operations = [
        Mark(operation.started_at, SIGNS.get(operation.kind, OTHER), "act", _word(operation))
        for operation in picture.operations[-MOST_MARKS:]
        if replica is None or operation.target in (replica, "fleet")
    ]
    kept = (alarms + sorted(operations, key=lambda mark: -mark.at))[:MOST_MARKS]
    return sorted(kept, key=lambda mark: mark.at)
