"""How long each alarm has stood."""

import dataclasses
from dataclasses import dataclass

import msgspec
from infer_engine.protocol import Alarm

from infer_console.diagnosis.alarms import LINK_LOST, find_alarms
from infer_console.state.picture import Picture
from infer_console.view.alarms import gravity

#: What was silent for less than this and fires again is the same alarm: no flapping clock.
FORGET_AFTER_S = 10.0
#: From this silence on its line says so.
QUIET_AFTER_S = 2.0
#: Rules over measurements, which cross their thresholds to and fro: their lines stay for as long.
MEASURED = frozenset({"queueing_on_kv", "kv_nearly_full", "preempting", "slow_ttft", "replica_stalled"})


@dataclass(slots=True)
class _Seen:
    first_s: float
    last_s: float
    #: It stood already in the first picture of a connection, so its start is not known.
    found_standing: bool
    alarm: Alarm


class AlarmMemory:
    """Finds a picture's alarms and adds ``since_s``, the seconds since each first fired, or, where it was
    there before this console was, ``at_least_s``. Times are monotonic."""

    def __init__(self) -> None:
        #: By rule and replica.
        self._seen: dict[tuple[str, str | None], _Seen] = {}
        self._was_live = False

    def __deepcopy__(self, _memo: object) -> "AlarmMemory":
        copied = AlarmMemory()
        copied._seen = {key: dataclasses.replace(seen) for key, seen in self._seen.items()}
        copied._was_live = self._was_live
        return copied

    def alarms(self, picture: Picture, now_s: float) -> tuple[Alarm, ...]:
        """While the link is lost the alarms are those of the last picture, and their clocks stand. One over a
        measurement stays for ten seconds after it last fired."""
        found = find_alarms(picture)
        live = picture.link.state in ("live", "stale") and bool(picture.replicas)
        lost = picture.link.state == "lost"
        then_s = now_s - (picture.link.age_s or 0.0) if lost else now_s
        for alarm in found:
            key = alarm.rule, alarm.replica
            seen = self._seen.get(key)
            if seen is None:
                self._seen[key] = _Seen(then_s, then_s, live and not self._was_live, alarm)
            else:
                seen.last_s, seen.alarm = max(seen.last_s, then_s), alarm
        if not lost:
            self._was_live = live
            firing = {(alarm.rule, alarm.replica) for alarm in found}
            self._forget(picture, now_s, firing)
            found += tuple(_over(seen, now_s) for key, seen in self._seen.items() if key not in firing)
            found = tuple(sorted(found, key=gravity))
        else:
            self._was_live = False
        return tuple(self._aged(alarm, then_s) for alarm in found)

    def _forget(self, picture: Picture, now_s: float, firing: set[tuple[str, str | None]]) -> None:
        """What was measured of a replica that no longer serves is over at once."""
        serving = {
            name for name, each in picture.replicas.items() if each.status.state in ("ready", "draining")
        }
        self._seen = {
            key: seen
            for key, seen in self._seen.items()
            if key in firing
            or (key[0] in MEASURED and key[1] in serving and now_s - seen.last_s < FORGET_AFTER_S)
        }

    def _aged(self, alarm: Alarm, now_s: float) -> Alarm:
        if alarm.rule == LINK_LOST:  # says so itself
            return alarm
        seen = self._seen[alarm.rule, alarm.replica]
        stood_s = max(0.0, now_s - seen.first_s)
        if seen.found_standing:
            return msgspec.structs.replace(alarm, at_least_s=stood_s)
        return msgspec.structs.replace(alarm, since_s=stood_s)


def _over(seen: _Seen, now_s: float) -> Alarm:
    """An alarm that fires no more but is shown a little longer."""
    if now_s - seen.last_s < QUIET_AFTER_S:
        return seen.alarm
    return msgspec.structs.replace(seen.alarm, text=f"until just now: {seen.alarm.text}")
