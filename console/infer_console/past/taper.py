"""Writes the tape while messages are folded: the collector's thread does so live, and ``load`` for what comes
from a file or from the server's flight recorder."""

import copy

from infer_engine.protocol import Envelope, EventDelta, OperationDelta

from infer_console.diagnosis.judge import Judge
from infer_console.past.changes import Changes
from infer_console.past.snapshot import snapshot_deltas, snapshot_lines
from infer_console.past.tape import JUDGE_BYTES, MAX_SAMPLED, Segment, Tape
from infer_console.state.fold import ConsoleState
from infer_console.state.picture import Picture
from infer_console.state.series import INTERVAL_S, SeriesSample


class Taper:
    """``state`` is told first, then this. Times named ``now_s`` are the state's clock; the tape's is the
    server's, as its messages tell it."""

    def __init__(self, tape: Tape, state: ConsoleState, judge: Judge) -> None:
        self._tape = tape
        self._state = state
        self._judge = judge
        #: What the server's clock shows more than the state's.
        self._offset_s = 0.0
        self._last_event = ("", -1)
        self._told_before = False
        self._changes = Changes()

    def at(self, now_s: float) -> float:
        """The server's clock."""
        return now_s + self._offset_s

    def message(self, envelope: Envelope, line: bytes, now_s: float) -> None:
        """One that was folded."""
        at = envelope.at
        self._offset_s = at - now_s
        if self._tape.last is None:
            if envelope.prev != 0:
                return  # nothing to fold it into
            self._begin(at, now_s)
        self._tape.marks.epoch(at, envelope.epoch)
        self._tape.add(line, at)
        for change in self._changes.of(envelope):
            self._tape.marks.change(at, change)
        match envelope.delta:
            case EventDelta(event=event):
                epoch, seq = self._last_event
                if envelope.epoch != epoch or event.seq > seq:
                    self._last_event = envelope.epoch, event.seq
                    self._tape.event(at, event)
            case OperationDelta(operation=operation):
                self._tape.marks.operation(envelope.epoch, operation)
            case _:
                pass
        last = self._tape.last
        if last is not None and last.is_full and self._state.is_whole and self._state.position[1]:
            self._keyframe(at, now_s)

    def sampled(self, now_s: float) -> None:
        """The histories got a sample."""
        series = self._state.series
        if not self._told_before:
            self._told_before = True
            self._tell_before(now_s)
        chosen = series if len(series) <= MAX_SAMPLED else {"": series[""]}
        self._tape.sample(self.at(now_s), {name: each.newest() for name, each in chosen.items()})

    def drawn(self, picture: Picture, now_s: float) -> None:
        """A picture with its alarms."""
        if self._tape.last is not None and picture.totals is not None:
            self._tape.marks.alarms(self.at(now_s), picture.alarms)

    def _begin(self, at: float, now_s: float) -> None:
        replicas = len(self._state.series) - 1
        few = replicas <= MAX_SAMPLED
        judge_bytes = JUDGE_BYTES * (1 + replicas) if few else 0
        self._tape.begin(
            Segment(
                from_at=at,
                until_at=at,
                # What the diagnosis remembers of very many replicas is too much to be kept every 30 s.
                judge=copy.deepcopy(self._judge) if few else Judge(),
                judge_offset_s=at - now_s,
                judge_is_kept=few,
                bytes=judge_bytes,
                judge_bytes=judge_bytes,
            )
        )

    def _keyframe(self, at: float, now_s: float) -> None:
        """The next segment, with all that is known before what comes next. Events are kept beside it."""
        epoch, seq = self._state.position
        picture = self._state.picture(at, now_s)
        self._begin(at, now_s)
        for line in snapshot_lines(snapshot_deltas(picture, events=False), epoch, seq, at):
            self._tape.add(line, at, snapshot=True)

    def _tell_before(self, now_s: float) -> None:
        """The histories as they were when this began: what the server told of the time before."""
        series = self._state.series
        if len(series) > MAX_SAMPLED:
            series = {"": series[""]}
        told: dict[int, dict[str, SeriesSample]] = {}
        for name, each in series.items():
            for back, sample in enumerate(each.backwards()):
                if back:  # the newest is told as the first of what is sampled from now on
                    told.setdefault(back, {})[name] = sample
        at = self.at(now_s)
        self._tape.prelude([(at - back * INTERVAL_S, told[back]) for back in sorted(told, reverse=True)])
