"""A recording read onto a tape: from a file, or from what a server's flight recorder sent."""

from collections.abc import Callable, Iterable

import msgspec
from infer_engine.protocol import Aside, Envelope, History

from infer_console.diagnosis.judge import Judge
from infer_console.past.tape import Tape
from infer_console.past.taper import Taper
from infer_console.recording import Header
from infer_console.state.fold import ConsoleState
from infer_console.state.series import INTERVAL_S

#: Memory for a recording that is replayed; of a longer one the end is kept.
REPLAY_BYTES = 256 * 1024 * 1024
#: A longer silence is passed over at once.
MOST_SILENCE_S = 120.0


class Loader:
    """Folds messages as if they came at the moments that they name, sampling and diagnosing in between."""

    def __init__(self, tape: Tape, url: str) -> None:
        self._tape = tape
        self._state = ConsoleState(url)
        self._judge = Judge()
        self._taper = Taper(tape, self._state, self._judge)
        self._sampled_at: float | None = None
        self._whole = True
        self.messages = 0
        #: Left out, since one before them is missing.
        self.unfolded = 0

    def look_back(self, history: History) -> None:
        """What was before the first message."""
        self._state.look_back(history)

    def header(self, header: Header) -> None:
        """What a recording's first line tells."""
        if header.history is not None:
            self._state.look_back(header.history, header.taken)
            self._sampled_at = header.history.until_at
        for mark in header.marks:
            self._tape.marks.own(mark.at, mark.text)

    def aside(self, aside: Aside) -> None:
        """What a recording has beside its messages."""
        self._tape.kept.add(aside)

    def add(self, line: bytes, envelope: Envelope) -> None:
        self.messages += 1
        self._pass_time(envelope.at)
        if envelope.prev == 0:
            self._state.opened()
            self._whole = True
        if self._whole:
            self._whole = self._state.fold(envelope, envelope.at)
        if self._whole:
            self._taper.message(envelope, line, envelope.at)
        else:
            self.unfolded += 1

    def _pass_time(self, at: float) -> None:
        """Take the samples that are due before a moment. Messages are not sorted to the millisecond."""
        if self._sampled_at is None:
            self._sampled_at = at
        if at - self._sampled_at > MOST_SILENCE_S:
            self._sampled_at = at - INTERVAL_S
        while at - self._sampled_at >= INTERVAL_S:
            self._sampled_at += INTERVAL_S
            now_at = self._sampled_at
            if self._state.is_whole and self._state.sample(now_at):
                self._taper.sampled(now_at)
                picture = self._state.picture(now_at, now_at)
                self._taper.drawn(self._judge.judged(picture, now_at), now_at)


def load(
    messages: Iterable[tuple[bytes, Envelope]],
    loader: Loader,
    go_on: Callable[[], bool] = lambda: True,
) -> None:
    """``go_on`` is asked now and then; False ends the loading. Raises RecordingError where the rest is
    damaged."""
    for line, envelope in messages:
        loader.add(line, envelope)
        if loader.messages % 256 == 0 and not go_on():
            return


def before(history: History, at: float) -> History:
    """A history as it was at a moment."""
    later = max(0, round((history.until_at - at) / history.step_s))

    def cut(series: dict[str, list[float | None]]) -> dict[str, list[float | None]]:
        return {key: values[: len(values) - later] for key, values in series.items()}

    return msgspec.structs.replace(
        history,
        until_at=history.until_at - later * history.step_s,
        fleet=cut(history.fleet),
        replicas={name: cut(series) for name, series in history.replicas.items()},
    )
