"""What stands out on a timeline: alarms that began, what operators did, what changed by itself, restarts, and
own marks."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from infer_engine.protocol import Alarm, Operation

from infer_console.past.changes import Change

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
#: Operations under which replicas come and go.
_COMING = frozenset(("scale", "fence", "release", "restart"))
#: A change this near to an operation of its kind is that one's.
SAME_CHANGE_S = 10.0
MAX_MESSAGE = 120
REVERT = "-revert"
#: Operations and changes that are compared with each other.
MOST_LATELY = 64
#: Replicas of one change that are named; of more, how many.
MOST_NAMED = 3


class _Done(NamedTuple):
    """An operation as far as changes may be its: ``until_at`` None while it is under way."""

    letters: str
    from_at: float
    until_at: float | None


class _Seen(NamedTuple):
    """A change that has a mark, of so many replicas."""

    mark: "Mark"
    replicas: tuple[str, ...]


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
        #: Operations by their id, and changes by their sign and words, lately.
        self._done: dict[str, _Done] = {}
        self._seen: dict[tuple[str, str], _Seen] = {}

    def all(self) -> tuple[Mark, ...]:
        return tuple(self._marks)

    @property
    def count(self) -> int:
        return len(self._marks)

    def own(self, at: float, text: str = "") -> Mark:
        self._own += 1
        return self._add(Mark(at, "own", "m", text or f"mark {self._own}"))

    def alarms(self, at: float, alarms: Iterable[Alarm]) -> None:
        """Those that stand at a moment."""
        standing = {(alarm.rule, alarm.replica): alarm for alarm in alarms}
        for key, alarm in standing.items():
            if key in self._standing or at - self._began.get(key, -SAME_ALARM_S) < SAME_ALARM_S:
                continue
            if alarm.severity == "notice":
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
        """It is marked once, where it began; what goes back after a while, where it went back."""
        known = f"{epoch}:{operation.id}"
        kind = operation.kind
        letter = _LETTERS.get(kind.removesuffix(REVERT).replace("-", "_"), "O")
        self._note(known, letter, operation)
        reverts = kind.endswith(REVERT)
        if known in self._operations or (reverts and operation.phase != "succeeded"):
            return
        if len(self._operations) > MAX_MARKS:
            self._operations.clear()  # at worst one is marked twice
        self._operations.add(known)
        at = operation.started_at
        if reverts:
            at = operation.ended_at or at
        what = f"{kind.removesuffix(REVERT)} {operation.target}"
        by = f" by {operation.actor}" if operation.actor else ""
        setting = letter in _SETTINGS
        says = f": {operation.message[:MAX_MESSAGE]}" if setting and operation.message else ""
        self._forget_changes(_letters(letter, kind), at)
        self._add(
            Mark(
                at,
                "setting" if setting else "action",
                letter,
                f"{what} went back{says}" if reverts else f"{what}{by}{says}",
            )
        )

    def _note(self, known: str, letter: str, operation: Operation) -> None:
        letters = _letters(letter, operation.kind)
        from_at, until_at = operation.started_at, operation.ended_at
        if operation.kind.endswith(REVERT):  # until then it only waits
            from_at = until_at if until_at is not None else float("inf")
        self._done.pop(known, None)
        self._done[known] = _Done(letters, from_at, until_at)
        while len(self._done) > MOST_LATELY:
            del self._done[next(iter(self._done))]

    def change(self, at: float, change: Change) -> None:
        """Something changed; where an operation is known that did it, that one's mark says it."""
        if any(
            change.sign in done.letters
            and done.from_at - SAME_CHANGE_S <= at
            and (done.until_at is None or at <= done.until_at + SAME_CHANGE_S)
            for done in self._done.values()
        ):
            return
        key = change.sign, change.what
        seen = self._seen.get(key)
        replicas = (change.replica,) if change.replica is not None else ()
        if seen is not None and 0 <= at - seen.mark.at <= SAME_CHANGE_S and self._drop(seen.mark):
            replicas = (*seen.replicas, *replicas)
            at = seen.mark.at
        where = ", ".join(replicas) if len(replicas) <= MOST_NAMED else f"{len(replicas)} replicas"
        text = f"{where}: {change.what}" if where else change.what
        self._seen[key] = _Seen(self._add(Mark(at, "setting", change.sign, text)), replicas)
        while len(self._seen) > MOST_LATELY:
            del self._seen[next(iter(self._seen))]

    def _forget_changes(self, letters: str, at: float) -> None:
        """Of one that is told only now that it was an operation."""
        for key, seen in list(self._seen.items()):
            if seen.mark.sign in letters and abs(seen.mark.at - at) <= SAME_CHANGE_S:
                del self._seen[key]
                self._drop(seen.mark)

    def _drop(self, mark: Mark) -> bool:
        """One of the latest; False where it is none of them any more."""
        for place in range(len(self._marks) - 1, max(-1, len(self._marks) - 1 - MOST_LATELY), -1):
            if self._marks[place] is mark:
                del self._marks[place]
                return True
        return False

    def epoch(self, at: float, epoch: str) -> None:
        if self._epoch not in (None, epoch):
            self._add(Mark(at, "server", "↻", "the server began anew"))
        self._epoch = epoch

    def _add(self, mark: Mark) -> Mark:
        self._marks.append(mark)
        if len(self._marks) > MAX_MARKS:
            del self._marks[: MAX_MARKS // 10]
        return mark


def _letters(letter: str, kind: str) -> str:
    """Signs of the changes that an operation makes."""
    return letter + ("H" if letter == "L" else "") + ("S" if kind in _COMING else "")
