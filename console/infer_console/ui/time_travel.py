"""Which moment the screens show: the newest, one that was frozen, one of the past, or one of a recording."""

import contextlib
import dataclasses
from collections.abc import Callable

from infer_console.past.cut import audit_until, timeline_until
from infer_console.past.marks import Mark
from infer_console.past.timeline import Timeline, lacks_detail
from infer_console.past.when import moment
from infer_console.state.picture import Picture, TimelinePicture
from infer_console.ui.ports import PastPort
from infer_console.view.look import Look
from infer_console.view.scrubber import Scrub
from infer_console.view.timeline import clock_pace

#: The track shows the last half hour, or from a little before the moment that is shown.
TRACK_S, MARGIN_S = 1_800.0, 60.0
#: A mark that is nearer than this is the one at which the operator stands.
AT_MARK_S = 0.5
#: What an export takes where nothing is marked.
EXPORT_S = 600.0
#: Of a recording whose end, where such things may stand, was not read yet.
NOT_READ = "the recording is still being read"


class TimeTravel:
    """``newest`` is the collector's picture. Without ``past`` it can be frozen, and that is all.
    ``replay_speed`` is given for a recording: there is no now, and it is played that fast."""

    def __init__(
        self,
        look: Look,
        newest: Callable[[], Picture],
        past: PastPort | None = None,
        *,
        replay_speed: float | None = None,
        replay_at: str | None = None,
    ) -> None:
        self._look = look
        self._newest = newest
        self._port = past
        self._replay = replay_speed is not None
        self._usual_speed = replay_speed or 1.0
        #: What is shown of another time than now: as it was folded, and with what was looked up beside it.
        self._folded: Picture | None = None
        self._shown: Picture | None = None
        self._dressed_with: tuple[object, ...] = ()
        self._past = self._replay
        self._at = 0.0
        self._wanted_at: float | None = None
        self._looked_at: tuple[str, ...] = ()
        self._version = 0
        #: Where a recording is to begin, until that is read.
        self._begin = replay_at
        self.speed = replay_speed if replay_at is None else None
        look.paused = self._replay

    @property
    def _timeline(self) -> Timeline | None:
        """Of the fleet that is shown: that may be another one later."""
        return self._port.timeline if self._port is not None else None

    # --- what is shown

    @property
    def is_replay(self) -> bool:
        return self._replay

    @property
    def is_live(self) -> bool:
        return self._shown is None and not self._replay

    @property
    def picture(self) -> Picture:
        return self._shown or self._newest()

    @property
    def moment(self) -> float | None:
        """The moment that is shown; None for now."""
        return None if self.is_live else self._at

    def looking_at(self, replicas: tuple[str, ...]) -> None:
        """Replicas whose details are shown: where this moment lacks them, the server may have them."""
        if replicas != self._looked_at:
            self._looked_at = replicas
            if self._past and self._shown is not None:
                self.jump(self._at)

    def refresh(self) -> None:
        """Something may have come that was waited for."""
        self._refresh_moment()
        self._dress()

    def _refresh_moment(self) -> None:
        timeline = self._timeline
        if timeline is None or not self._past or timeline.version == self._version:
            return
        self._version = timeline.version
        if self._wanted_at is not None or self._shown is None or lacks_detail(self._shown, self._looked_at):
            self.jump(self._wanted_at if self._wanted_at is not None else self._at)

    def scrub(self) -> Scrub | None:
        """What the row of time shows; None while the newest is shown."""
        if self.is_live:
            return None
        edge = self.latest()
        earliest = self._earliest()
        track_at = min(edge - TRACK_S, self._at - MARGIN_S)
        from_at = earliest if self._replay else max(earliest, track_at)
        return Scrub(
            from_at=from_at,
            to_at=max(edge, from_at),
            at=self._at,
            live=not self._replay,
            past=self._past,
            wanted_at=self._wanted_at,
            marks=self._timeline.marks() if self._timeline is not None else (),
            speed=self.speed,
            note=self._note(),
        )

    def _note(self) -> str:
        if (note := self._fetching) or self._replay:
            return note
        link = self._newest().link
        return "" if link.state == "live" else f"connection {link.state}"

    # --- moving

    def pause(self) -> None:
        """Freeze the newest picture."""
        self._folded = self._shown = self._newest()
        self._past, self._wanted_at = False, None
        self._at = self._folded.at
        self._look.paused = True
        self._dress()

    def resume(self) -> None:
        """Show the newest again; of a recording, its end."""
        if self._replay:
            self.speed = None
            self.jump(self.latest())
            return
        self._folded, self._shown, self._past, self._wanted_at = None, None, False, None
        self._look.paused = False
        if self._port is not None:
            self._port.audit_until(None)

    def step(self, by_s: float) -> bool:
        return self.jump((self._at if not self.is_live else self.latest()) + by_s)

    def jump(self, at: float) -> bool:
        """Show a moment, or the nearest that there is; False where nothing of the past is kept. One that has
        to be fetched is shown when it has come."""
        timeline = self._timeline
        if timeline is None or timeline.span() is None:
            return False
        at = max(self._earliest(), min(at, self.latest()))
        if self.is_live:
            self.pause()
        picture = timeline.picture(at, self._looked_at)
        self._version = timeline.version
        if picture is None or lacks_detail(picture, self._looked_at):
            self._fetch(at)
        self._past = True
        if picture is None:
            self._wanted_at = at
            return True
        self._at, self._wanted_at = at, None
        self._folded = picture
        self._dress()
        if self._port is not None:
            self._port.audit_until(at)
        return True

    def _dress(self) -> None:
        """Put what was looked up beside what was folded, cut at this moment, where either has changed."""
        folded, newest, timeline = self._folded, self._newest(), self._timeline
        if folded is None:
            return
        kept = timeline.kept_version if timeline is not None else 0
        request = self._look.timeline
        reading = self._replay and self._fetching.startswith("reading")
        given = (folded, self._at, request, newest.timeline, newest.audit, kept, reading)
        if len(given) == len(self._dressed_with) and all(
            now is before or (isinstance(now, int | float | str) and now == before)
            for now, before in zip(given, self._dressed_with, strict=True)
        ):
            return
        self._dressed_with = given
        told = newest.timeline
        if request is not None and (told is None or told.request != request or told.timeline is None):
            found = timeline.of_request(request) if timeline is not None else None
            if found is not None:
                told = TimelinePicture(request, found)
            elif self._replay:
                told = TimelinePicture(
                    request, message=NOT_READ if reading else "its timeline is not in this recording"
                )
            elif self._past and told is not None and told.request == request and told.message:
                self._fetch(self._at)  # who is not known any more was recorded, perhaps
        if told is not None:
            told = timeline_until(told, self._at, clock_pace(folded, told.timeline))
        if self._replay:
            audit = timeline.audit(self._at) if timeline is not None else None
            if audit is not None and audit.trouble and reading:
                audit = dataclasses.replace(audit, trouble=NOT_READ)
            self._shown = dataclasses.replace(folded, timeline=told, audit=audit)
            return
        audit = audit_until(newest.audit, self._at) if newest.audit is not None else None
        shown = with_who_looks(folded, newest) if self._past else folded
        self._shown = dataclasses.replace(shown, timeline=told, audit=audit)

    def next_mark(self, by: int) -> Mark | None:
        """Go to the next (1) or the previous (-1) mark; None where there is none."""
        if self._timeline is None:
            return None
        here = self.latest() if self.is_live else self._at
        first, last = self._earliest(), self.latest()
        marks = [mark for mark in self._timeline.marks() if first <= mark.at <= last]
        if by > 0:
            found = next((mark for mark in marks if mark.at > here + AT_MARK_S), None)
        else:
            found = next((mark for mark in reversed(marks) if mark.at < here - AT_MARK_S), None)
        if found is not None:
            self.jump(found.at)
        return found

    def mark(self) -> Mark | None:
        """Put a mark of the operator's own at the moment that is shown."""
        if self._timeline is None:
            return None
        return self._timeline.mark(self.latest() if self.is_live else self._at)

    # --- playing a recording

    def toggle_playing(self) -> None:
        self.play(None if self.speed is not None else self._usual_speed)

    def play(self, speed: float | None) -> None:
        """So many seconds in one; None stops."""
        self.speed = speed
        if speed is not None and self._at >= self.latest():
            self.jump(self._earliest())

    def tick(self, passed_s: float) -> bool:
        """Time has passed; whether there is another moment to show."""
        if self._timeline is None or self._timeline.span() is None:
            return False
        if self._begin is not None:
            return self._find_beginning()
        if self.speed is None:
            return False
        edge = self.latest()
        self.jump(max(self._at, self._earliest()) + passed_s * self.speed)
        if self._at >= edge and not self._fetching:
            self.speed = None
        return True

    def _find_beginning(self) -> bool:
        """Go to where a recording is to begin. A time of day, or before the end, is known when all was
        read."""
        assert self._begin is not None
        if self._fetching.startswith("reading"):
            return False
        with contextlib.suppress(ValueError):  # the command line has looked at it
            self.jump(moment(self._begin, self.latest()))
        self._begin = None
        return True

    # --- the past

    def picture_at(self, at: float) -> Picture | None:
        """Of another moment than is shown; None where it is not there, and then it is fetched."""
        if self._timeline is None:
            return None
        picture = self._timeline.picture(at)
        if picture is None:
            self._fetch(at)
        return picture

    def span_to_export(self) -> tuple[float, float]:
        """From the last own mark, or the last ten minutes, up to now."""
        to_at = self.latest()
        marks = self._timeline.marks() if self._timeline is not None else ()
        own = [mark.at for mark in marks if mark.kind == "own" and mark.at < to_at]
        return (own[-1] if own else to_at - EXPORT_S), to_at

    def _fetch(self, at: float) -> None:
        if self._port is not None:
            self._port.fetch_past(at)

    @property
    def _fetching(self) -> str:
        return self._port.fetching if self._port is not None else ""

    # --- bounds

    def latest(self) -> float:
        """The newest moment that can be shown, in Unix seconds: the end of a recording, or about now."""
        span = self._timeline.span() if self._timeline is not None else None
        newest = self._newest().at
        if span is None:
            return newest if not self._replay else 0.0
        return span[1]

    def _earliest(self) -> float:
        span = self._timeline.span() if self._timeline is not None else None
        if span is None:
            return self._at
        fleet = self._newest().fleet
        recorder = fleet.recorder if fleet is not None and not self._replay else None
        if recorder is None or recorder.from_at is None:
            return span[0]
        return min(span[0], recorder.from_at)


def with_who_looks(picture: Picture, newest: Picture) -> Picture:
    """What is no part of a moment: whose console this is and what it may do."""
    return dataclasses.replace(
        picture,
        environment=newest.environment,
        read_only=newest.read_only,
        role=newest.role,
        subject=newest.subject,
        claim=newest.claim,
        embedded=newest.embedded,
    )
