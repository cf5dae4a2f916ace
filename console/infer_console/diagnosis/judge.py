"""What is wrong and why, over the pictures it is given one after the other: live, in the past and in a
recording by the same code."""

import dataclasses

from infer_console.diagnosis.causes import with_causes
from infer_console.diagnosis.doctor import Doctor
from infer_console.diagnosis.memory import AlarmMemory
from infer_console.state.picture import Picture


class Judge:
    """Remembers since when. A deep copy goes on by itself."""

    def __init__(self) -> None:
        self._alarms = AlarmMemory()
        self._doctor = Doctor()

    def take(self, other: "Judge") -> None:
        """Go on where another one is."""
        self._alarms, self._doctor = other._alarms, other._doctor

    def judged(self, picture: Picture, now_s: float) -> Picture:
        """The picture with its findings and alarms; ``now_s`` is a clock without jumps."""
        findings = self._doctor.look(picture)
        alarms = with_causes(self._alarms.alarms(picture, now_s), findings)
        return dataclasses.replace(picture, alarms=alarms, findings=findings)
