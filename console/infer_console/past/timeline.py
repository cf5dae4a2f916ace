"""Any moment that is kept, as a picture: of what this console was told since it came, and of pieces of the
server's flight recorder for the time before and for details that nobody looked at."""

import threading
from collections.abc import Iterable, Iterator

from infer_engine.protocol import Envelope
from infer_engine.protocol import Timeline as Told

from infer_console.past.marks import Mark
from infer_console.past.moment import Moment, decoded
from infer_console.past.tape import DEFAULT_BYTES, Tape
from infer_console.state.audit import AuditPicture
from infer_console.state.picture import Picture, ReplicaPicture

#: Of the flight recorder's pieces; the one that was fetched first goes first.
PIECES_BYTES = 3 * 1024 * 1024
#: Two moments of a very large fleet are compared: the last two stay up to so much.
PAIR_BYTES = 32 * 1024 * 1024
#: The recorder says something this often, at least: so far a piece holds beyond its last message.
PIECE_TOLERANCE_S = 10.0
#: A moment is a whole state, and is not counted: so many tapes have one, and the first that was made goes.
MOST_MOMENTS = 3


class Timeline:
    """``own`` is written by the collector's thread; ``picture`` and the rest may be called from any one
    thread besides."""

    def __init__(self, url: str, own: Tape | None = None) -> None:
        self.own = own if own is not None else Tape(DEFAULT_BYTES)
        self._url = url
        self._lock = threading.Lock()
        self._pieces: list[Tape] = []
        self._moments: dict[int, Moment] = {}
        #: Grows when a piece was added.
        self.version = 0
        #: Messages that were folded by the last ``picture``: what a seek costs.
        self.last_folded = 0

    def picture(self, at: float, looked_at: Iterable[str] = ()) -> Picture | None:
        """All that was known then; None where that time is not kept. Of the tapes that have that moment the
        first that has details of the replicas looked at is taken."""
        self.last_folded = 0
        wanted = tuple(looked_at)
        best: Picture | None = None
        for tape in self._having(at):
            picture = self._seek(tape, at)
            if picture is not None and not lacks_detail(picture, wanted):
                return picture
            best = best or picture
        return best

    def snapshot(self, at: float) -> Picture | None:
        """As ``picture``, by itself: for other threads than that which looks."""
        for tape in self._having(at):
            stretch = tape.stretch(at)
            if stretch is not None:
                return Moment(tape, stretch, self._url).picture(at)
        return None

    def sampled_at(self, at: float) -> float | None:
        """When the last sample before a moment was taken."""
        having = self._having(at)
        return having[0].sampled_at(at) if having else None

    def has(self, at: float) -> bool:
        return bool(self._having(at))

    def span(self) -> tuple[float, float] | None:
        """The first and the last moment that can be shown."""
        spans = [span for tape in (self.own, *self._pieces_now()) if (span := tape.span()) is not None]
        if not spans:
            return None
        return min(span[0] for span in spans), max(span[1] for span in spans)

    def marks(self) -> tuple[Mark, ...]:
        """Of all tapes, in the order of time; what two tapes have is one."""
        found: dict[tuple[int, str, str], Mark] = {}
        for tape in (self.own, *self._pieces_now()):
            for mark in tape.all_marks():
                found.setdefault((round(mark.at / 2), mark.sign, mark.text), mark)
        return tuple(sorted(found.values()))

    def of_request(self, request: str) -> Told | None:
        """What a recording, or a piece of the flight recorder, has of what happened to it."""
        for tape in (self.own, *reversed(self._pieces_now())):
            if (found := tape.kept.timeline(request)) is not None:
                return found
        return None

    def audit(self, at: float) -> AuditPicture:
        """What a recording has of the audit up to a moment."""
        return self.own.kept.audit(at)

    @property
    def kept_version(self) -> int:
        """Grows when what is beside the messages does."""
        return self.version + sum(tape.kept.version for tape in (self.own, *self._pieces_now()))

    def asides(self, from_at: float, to_at: float) -> Iterator[bytes]:
        """Of that time, as lines of a recording; what two tapes have comes twice."""
        for tape in (*self._pieces_now(), self.own):
            yield from tape.kept.within(from_at, to_at)

    def mark(self, at: float, text: str = "") -> Mark:
        """One of the operator's own."""
        return self.own.marks.own(at, text)

    def add_piece(self, tape: Tape) -> list[Tape]:
        """One that is whole; returns those that had to go for it."""
        tape.finish()
        gone: list[Tape] = []
        with self._lock:
            self._pieces.append(tape)
            self.version += 1
            while (more := len(self._pieces)) > 1 and sum(piece.bytes for piece in self._pieces) > (
                PAIR_BYTES if more == 2 else PIECES_BYTES
            ):
                gone.append(self._pieces.pop(0))
                self._moments.pop(id(gone[-1]), None)
        return gone

    @property
    def pieces_bytes(self) -> int:
        """What was fetched of the flight recorder takes in memory."""
        return sum(piece.bytes for piece in self._pieces_now())

    def envelopes(self, from_at: float, to_at: float) -> Iterator[Envelope]:
        """What the own tape has of a time, from the snapshot before it on."""
        for stretch in self.own.stretches(from_at, to_at):
            yield from decoded(stretch.lines())

    def _having(self, at: float) -> list[Tape]:
        own = self.own.span()
        tapes = [self.own] if own is not None and at >= own[0] else []
        return tapes + [each for each in reversed(self._pieces_now()) if each.covers(at, PIECE_TOLERANCE_S)]

    def _pieces_now(self) -> list[Tape]:
        with self._lock:
            return list(self._pieces)

    def _seek(self, tape: Tape, at: float) -> Picture | None:
        stretch = tape.stretch(at)
        if stretch is None:
            return None
        moment = self._moments.get(id(tape))
        if moment is None or not moment.can_reach(stretch, at):
            with self._lock:
                self._moments.pop(id(tape), None)
                for oldest in list(self._moments)[: 1 - MOST_MOMENTS]:
                    del self._moments[oldest]
            moment = self._moments[id(tape)] = Moment(tape, stretch, self._url)
        before = moment.folded
        picture = moment.picture(at)
        self.last_folded += moment.folded - before
        return picture if picture.totals is not None else None


def lacks_detail(picture: Picture, replicas: Iterable[str]) -> bool:
    """Whether one of these replicas is known by its status alone."""
    return any(
        (known := picture.replicas.get(replica)) is not None and _is_bare(known) for replica in replicas
    )


def _is_bare(replica: ReplicaPicture) -> bool:
    status = replica.status
    busy = (status.running or 0) + (status.waiting or 0)
    return bool(busy) and not replica.rows
