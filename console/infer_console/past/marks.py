"""What stands out on a timeline: alarms that began, what operators did, restarts, and own marks."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from infer_engine.protocol import Alarm, Operation

MarkKind = Literal["critical", "warning", "action", "setting", "server", "own"]

#: Marks kept; the oldest go first.
MAX_MARKS = 2_000
#: An alarm that begins anew within this long is the same incident, and gets no second mark.
SAME_ALARM_S = 60.0

#: The letter of an operation's kind: the key that begins it, where it has one.
_LETTERS = {
    "drain": "D",
    "undrain": "U",
    "fence": "F",
    "release": "R",
    "restart": "R",
    "scale": "S",
    "shed": "B",
    "cancel": "X",
    "cancel_where": "X",
    "preempt": "P",
    "inject": "I",
    "headroom": "H",
    "limits": "L",
    "tenant": "T",
}
_SETTINGS = frozenset("HLTBS")


class Mark(NamedTuple):
    """``text`` has words of servers and users in it and is not yet safe to print."""

    at: float
    kind: MarkKind
    #: One cell.
    sign: str
    text: str


class Marks:
    """Collects marks in the order in which they come."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self._operations: set[str] = set()
        self._standing: frozenset[tuple[str, str | None]] = frozenset()
        self._began: dict[tuple[str, str | None], float] = {}
        self._epoch: str | None = None
        self._own = 0

    def all(self) -> tuple[Mark, ...]:
        return tuple(self._marks)

    def own(self, at: float, text: str = "") -> Mark:
        self._own += 1
        return self._add(Mark(at, "own", "m", text or f"mark {self._own}"))

    def alarms(self, at: float, alarms: Iterable[Alarm]) -> None:
        """Those that stand at a moment."""
        standing = {(alarm.rule, alarm.replica): alarm for alarm in alarms}
        for key, alarm in standing.items():
            if key in self._standing or at - self._began.get(key, -SAME_ALARM_S) < SAME_ALARM_S:
                continue
            self._began[key] = at
            critical = alarm.severity == "critical"
            where = f"{alarm.replica}: " if alarm.replica else ""
            self._add(
                Mark(at, "critical" if critical else "warning", "▲" if critical else "△", where + alarm.text)
            )
        self._standing = frozenset(standing)
        if len(self._began) > MAX_MARKS:
            self._began = {key: began for key, began in self._began.items() if key in self._standing}

    def operation(self, epoch: str, operation: Operation) -> None:
        """It is marked once, where it began."""
        known = f"{epoch}:{operation.id}"
        if known in self._operations:
            return
        if len(self._operations) > MAX_MARKS:
            self._operations.clear()  # at worst one is marked twice
        self._operations.add(known)
        kind = operation.kind
        letter = _LETTERS.get(kind.removesuffix("-revert").replace("-", "_"), "O")
        by = f" by {operation.actor}" if operation.actor else ""
        self._add(
            Mark(
                operation.started_at,
                "setting" if letter in _SETTINGS else "action",
                letter,
                f"{kind} {operation.target}{by}",
            )
        )

    def epoch(self, at: float, epoch: str) -> None:
        if self._epoch not in (None, epoch):
            self._add(Mark(at, "server", "↻", "the server began anew"))
        self._epoch = epoch

    def _add(self, mark: Mark) -> Mark:
        self._marks.append(mark)
        if len(self._marks) > MAX_MARKS:
            del self._marks[: MAX_MARKS // 10]
        return mark
