"""What a recording has beside its messages, in memory: the timelines of requests, and the audit's records."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec
from infer_engine.protocol import Aside, AuditAside, AuditPage, Timeline, TimelineAside

from infer_console.past.packed import exact
from infer_console.recording import LATEST_AT
from infer_console.state.audit import MOST_NUMBER, AuditPicture, read_audit

#: Of both together; what came first goes first.
KEPT_BYTES = 16 * 1024 * 1024
#: About what a line takes besides itself: its key, and its place among the others.
LINE_BYTES = 250
#: Records of the audit that are shown at once.
RECORDS = 200
_Key = str | int

_asides = msgspec.json.Decoder(Aside)
_encoder = msgspec.json.Encoder()


class Kept:
    """Any thread writes and reads. Lines are kept as they came: what is not looked at costs little."""

    def __init__(self, max_bytes: int = KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        #: By request, or by the record's number.
        self._lines: OrderedDict[_Key, bytes] = OrderedDict()
        #: When each record was written, by its number.
        self._records: dict[int, float] = {}
        self._bytes = 0
        self.dropped = 0
        #: Grows with everything that is added.
        self.version = 0

    @property
    def held_bytes(self) -> int:
        """In memory."""
        return self._bytes

    def add(self, aside: Aside) -> None:
        match aside:
            case TimelineAside(timeline=timeline):
                self._put(timeline.request, _encoder.encode(aside))
            case AuditAside(record=record):
                number, at = record.get("number"), record.get("ts")
                if not isinstance(number, int) or not 0 <= number <= MOST_NUMBER:
                    return
                if isinstance(at, int | float) and 0 <= at <= LATEST_AT:
                    try:
                        line = _encoder.encode(aside)
                    except (OverflowError, RecursionError):  # numbers and depths that no audit has
                        self.dropped += 1
                        return
                    self._put(number, line, float(at))

    def _put(self, key: _Key, line: bytes, written_at: float | None = None) -> None:
        line = exact(line)
        with self._lock:
            self.version += 1
            if isinstance(key, int) and written_at is not None:
                self._records[key] = written_at
            if (replaced := self._lines.pop(key, None)) is not None:
                self._bytes -= LINE_BYTES + len(replaced)
            self._lines[key] = line
            self._bytes += LINE_BYTES + len(line)
            while self._bytes > self._max_bytes and len(self._lines) > 1:
                gone, old = self._lines.popitem(last=False)
                self._bytes -= LINE_BYTES + len(old)
                self.dropped += 1
                if isinstance(gone, int):
                    self._records.pop(gone, None)

    def timeline(self, request: str) -> Timeline | None:
        with self._lock:
            line = self._lines.get(request)
        aside = _asides.decode(line) if line is not None else None
        return aside.timeline if isinstance(aside, TimelineAside) else None

    def audit(self, at: float) -> AuditPicture:
        """The newest records that were written by then."""
        with self._lock:
            numbers = sorted(number for number, written_at in self._records.items() if written_at <= at)
            lines = [self._lines[number] for number in numbers[-RECORDS:]]
            any_at_all = bool(self._records)
        asides = (_asides.decode(line) for line in lines)
        records = [aside.record for aside in asides if isinstance(aside, AuditAside)]
        trouble = "" if any_at_all else "no audit is in this recording"
        return read_audit(AuditPage(records=records, trouble=trouble))

    def within(self, from_at: float, to_at: float) -> Iterator[bytes]:
        """Lines of what happened in that time; of requests that lived then the whole timeline."""
        with self._lock:
            lines = list(self._lines.values())
        for line in lines:
            if happened(_asides.decode(line), from_at, to_at):
                yield line


def happened(aside: Aside, from_at: float, to_at: float) -> bool:
    """Whether it tells anything of that time. A timeline's own clock may run faster than the wall's: it is
    taken for the wall's, which only takes more."""
    match aside:
        case TimelineAside(timeline=timeline):
            last_s = timeline.entries[-1].at_s if timeline.entries else 0.0
            over = any(entry.kind == "finished" for entry in timeline.entries[-2:])
            return timeline.began_at <= to_at and (not over or timeline.began_at + last_s >= from_at)
        case AuditAside(record=record):
            at = record.get("ts")
            return isinstance(at, int | float) and from_at <= at <= to_at


def audit_lines(records: Iterable[dict[str, object]]) -> Iterator[bytes]:
    """Records of the audit as lines of a recording."""
    for record in records:
        yield _encoder.encode(AuditAside(record=record))
