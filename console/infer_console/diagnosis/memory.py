"""How long each alarm has stood."""

import msgspec
from infer_engine.protocol import Alarm

from infer_console.diagnosis.alarms import find_alarms
from infer_console.state.picture import Picture

#: An alarm that was silent for less than this and fires again is the same alarm: no flapping clock.
FORGET_AFTER_S = 10.0


class AlarmMemory:
    """Finds a picture's alarms and adds ``since_s``, the seconds since each first fired. Times are
    monotonic."""

    def __init__(self) -> None:
        #: By rule and replica: when it first fired, when it last did.
        self._seen: dict[tuple[str, str | None], tuple[float, float]] = {}

    def alarms(self, picture: Picture, now_s: float) -> tuple[Alarm, ...]:
        """While the link is not live the alarms are those of the last picture known, and keep their
        clocks."""
        found = find_alarms(picture)
        for alarm in found:
            first_s, _ = self._seen.get((alarm.rule, alarm.replica), (now_s, now_s))
            self._seen[alarm.rule, alarm.replica] = first_s, now_s
        self._seen = {key: seen for key, seen in self._seen.items() if now_s - seen[1] < FORGET_AFTER_S}
        return tuple(
            msgspec.structs.replace(alarm, since_s=now_s - self._seen[alarm.rule, alarm.replica][0])
            for alarm in found
        )
