"""One moment of a tape as a picture: the segment's snapshot, and what was told from there on, folded by the
same code that folds a live stream."""

import copy
import dataclasses
from collections.abc import Iterator

import msgspec
from infer_engine.protocol import Envelope

from infer_console.past.tape import FLEET, Stretch, Tape
from infer_console.state.fold import ConsoleState
from infer_console.state.picture import Picture
from infer_console.state.series import SeriesSample, joined

#: The diagnosis looks at that many moments of a segment on the way, at most, so that it knows since when:
#: those at which the histories were sampled.
MOST_LOOKS = 16
#: Of very many replicas fewer: each look goes through all of them, and somebody waits.
MOST_LOOKS_OF_MANY = 4
NO_TEXT = "generated text is not recorded"

_envelopes = msgspec.json.Decoder(Envelope)


class Moment:
    """Moves forward within one segment; for another, or backwards, make another."""

    def __init__(self, tape: Tape, stretch: Stretch, url: str) -> None:
        self.stretch = stretch
        #: Messages that were folded so far.
        self.folded = 0
        self.at = stretch.segment.from_at
        self._tape = tape
        self._state = ConsoleState(url)
        self._judge = stretch.segment.judge_at_beginning()
        self._envelopes = decoded(stretch.lines())
        self._ahead = next(self._envelopes, None)
        sampled = [at for at, _ in stretch.segment.samples[:]]
        most = MOST_LOOKS if stretch.segment.judge_is_kept else MOST_LOOKS_OF_MANY
        #: Moments at which the diagnosis looks, the next one last.
        self._looks = sampled[:: -max(1, -(-len(sampled) // most))]
        self._whole = True

    def can_reach(self, stretch: Stretch, at: float) -> bool:
        """Whether folding on from here shows that moment."""
        mine = self.stretch
        return stretch.segment is mine.segment and stretch.messages == mine.messages and at >= self.at

    def picture(self, at: float) -> Picture:
        """All that was known then."""
        segment = self.stretch.segment
        self.at = max(self.at, at)
        while self._ahead is not None and self._ahead.at <= at:
            self._look_before(self._ahead.at)
            self._fold(self._ahead)
            self._ahead = next(self._envelopes, None)
        self._look_before(at)
        picture = self._with_histories(self._state.picture(at, at), at)
        judge = copy.deepcopy(self._judge)  # what is asked now is no part of what was
        return dataclasses.replace(
            judge.judged(picture, at - segment.judge_offset_s),
            link=dataclasses.replace(picture.link, bytes_per_s=None),
            events=self._tape.events_until(at),
            streams_message=NO_TEXT,
        )

    def _look_before(self, at: float) -> None:
        while self._looks and self._looks[-1] < at:
            self._look(self._looks.pop())

    def _look(self, at: float) -> None:
        self._judge.judged(self._state.picture(at, at), at - self.stretch.segment.judge_offset_s)

    def _fold(self, envelope: Envelope) -> None:
        if envelope.prev == 0:
            self._state.opened()
            self._whole = True
        if self._whole:
            self._whole = self._state.fold(envelope, envelope.at)
            self.folded += 1

    def _with_histories(self, picture: Picture, at: float) -> Picture:
        by_name: dict[str, list[SeriesSample]] = {FLEET: [], **{name: [] for name in picture.replicas}}
        for samples in self._tape.samples_until(at):
            for name, sample in samples.items():
                if name in by_name:
                    by_name[name].append(sample)
        replicas = {
            name: dataclasses.replace(each, history=joined(by_name[name])) if by_name[name] else each
            for name, each in picture.replicas.items()
        }
        return dataclasses.replace(picture, history=joined(by_name[FLEET]), replicas=replicas)


def decoded(lines: Iterator[bytes]) -> Iterator[Envelope]:
    """What was folded once can be decoded again."""
    for line in lines:
        yield _envelopes.decode(line)
