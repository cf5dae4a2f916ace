"""What waits for the broker: bounded, whatever the broker does.

Status and telemetry are latest-wins: a value that was not sent yet is replaced. Events queue up to a bound;
beyond it the oldest go, and the next event that is sent says how many. Pure: no clock, no I/O.
"""

from collections import deque
from dataclasses import dataclass, field

#: Events that may wait.
MOST_EVENTS = 1000


@dataclass(frozen=True, slots=True)
class Letter:
    """``expiry_s``: the broker need not deliver it later than that."""

    topic: str
    payload: dict[str, object]
    qos: int = 0
    retain: bool = False
    expiry_s: int | None = None


@dataclass(slots=True)
class Mailbox:
    most_events: int = MOST_EVENTS
    #: Events that were never sent, since the start.
    dropped: int = 0
    _slots: dict[str, Letter] = field(default_factory=dict[str, Letter])
    _events: deque[Letter] = field(default_factory=deque[Letter])
    _untold: int = 0

    def __len__(self) -> int:
        return len(self._slots) + len(self._events)

    def latest(self, letter: Letter) -> None:
        """Replaces what waits under the same topic, and keeps its place."""
        self._slots[letter.topic] = letter

    def event(self, letter: Letter) -> None:
        if len(self._events) >= self.most_events:
            self._events.popleft()
            self.dropped += 1
            self._untold += 1
        self._events.append(letter)

    def take(self) -> Letter | None:
        """The next to send: states before events. Not kept: ``put_back`` what could not be sent."""
        if self._slots:
            return self._slots.pop(next(iter(self._slots)))
        if not self._events:
            return None
        letter = self._events.popleft()
        if self._untold:
            payload = {**letter.payload, "dropped": self._untold}
            self._untold = 0
            return Letter(letter.topic, payload, letter.qos, letter.retain, letter.expiry_s)
        return letter

    def put_back(self, letter: Letter, *, is_event: bool) -> None:
        """It was not sent: first in line again, unless something newer took its place meanwhile."""
        if not is_event:
            self._slots = {letter.topic: self._slots.get(letter.topic, letter), **self._slots}
            return
        # What it was to tell is untold again, whether or not the letter itself stays.
        payload = dict(letter.payload)
        told = payload.pop("dropped", 0)
        self._untold += told if isinstance(told, int) else 0
        if len(self._events) < self.most_events:
            self._events.appendleft(Letter(letter.topic, payload, letter.qos, letter.retain, letter.expiry_s))
        else:
            self._untold += 1
            self.dropped += 1

    def forget_values(self) -> None:
        """A connection begins: what is current is about to be put in anew."""
        self._slots.clear()
