"""The audit on disk: JSON lines in files of bounded size, one chain through all of them. Everything here
blocks; one thread at a time."""

import contextlib
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from infer_engine.audit_chain import GENESIS, Record, canonical, digest, parse, seal
from infer_engine.telemetry.histograms import Histogram, bounds

log = logging.getLogger(__name__)

#: A file that is larger is followed by a new one; so is one of another day (UTC).
MAX_FILE_BYTES = 4 << 20
#: A line longer than this is none of ours.
MAX_LINE_BYTES = 256 << 10
FILES = "audit-*.jsonl"
SYNC_S = bounds("0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10")


class AuditDirError(Exception):
    """The directory belongs to another server; ``str()`` says which."""


class AuditFiles:
    """One server's own directory, from ``open`` to ``close``. ``wall`` gives Unix seconds."""

    def __init__(
        self, path: Path, wall: Callable[[], float] = time.time, max_file_bytes: int = MAX_FILE_BYTES
    ) -> None:
        self.path = path
        self._wall = wall
        self._max_file_bytes = max_file_bytes
        self._lock: int | None = None
        self._file: int | None = None
        #: Of the file that is written: bytes that are whole records, and the day it is of.
        self._size = 0
        self._day = -1
        self._number = 0
        self._head = GENESIS
        #: Of each batch of records: writing it and waiting until the disk has it.
        self.sync_s = Histogram(SYNC_S)

    def open(self) -> None:
        """Find the chain's end and repair it. AuditDirError when another server writes there; OSError when
        it cannot be used, and then it may be tried again."""
        if self._lock is None:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                raise AuditDirError(f"audit directory {self.path}: another server writes there") from None
            self._lock = lock
        if self._file is None:
            self._continue()

    def close(self) -> None:
        for handle in (self._file, self._lock):
            if handle is not None:
                os.close(handle)
        self._file = self._lock = None

    def append(self, records: Sequence[Record]) -> None:
        """Write them, in this order, as the chain's next links; they are on the disk when this returns.
        OSError when they are not: then none of them is in the chain."""
        self.open()
        full = self._size >= self._max_file_bytes or self._day != self._today()
        if self._file is None or (full and self._size):
            self._begin_file()
        assert self._file is not None
        number, head, lines = self._number, self._head, bytearray()
        for record in records:
            number += 1
            linked = seal(record, number, head)
            head = linked["sha256"]
            lines += canonical(linked) + b"\n"
        began_s = time.monotonic()
        try:
            _write(self._file, bytes(lines), self._size)
            os.fsync(self._file)
        except OSError:
            self._forget_file()  # what of it was written is a tear, found and cut when it is opened again
            raise
        self.sync_s.observe(time.monotonic() - began_s)
        self._number, self._head, self._size = number, head, self._size + len(lines)

    # --- reading

    def after(self, position: int, limit: int) -> list[Record]:
        """Up to ``limit`` records, the oldest first, beginning after so many."""
        found: list[Record] = []
        files = self._files()
        for at, file in enumerate(files):
            if at + 1 < len(files) and _first(files[at + 1]) <= position + 1:
                continue
            for index, record in enumerate(_records(file), _first(file)):
                if index > position:
                    found.append(record)
                if len(found) >= limit:
                    return found
        return found

    def before(self, position: int | None, limit: int) -> list[Record]:
        """The last ``limit`` records before the one of that position (before the end), the oldest first."""
        found: list[Record] = []
        for file in reversed(self._files()):
            if position is not None and _first(file) >= position:
                continue
            records = list(_records(file))
            if position is not None:
                records = records[: max(0, position - _first(file))]
            found = records[-(limit - len(found)) :] + found
            if len(found) >= limit:
                break
        return found

    # --- the end of the chain

    def _continue(self) -> None:
        """Go on where the last record ends. A torn end, as a power cut or SIGKILL leaves it, is cut off and
        that is written down; a whole line that is no record of ours stays, and a new file begins after it."""
        self._number, self._head, self._size, self._day = 0, GENESIS, 0, -1
        files = self._files()
        trouble: Record | None = None
        for file in reversed(files):
            torn = _cut_torn_end(file)
            trouble = trouble or torn
            last = _last_line(file)
            if last is None:
                file.unlink()  # nothing was ever written into it
                continue
            record = parse(last)
            if record is not None and _intact(record):
                self._number, self._head = int(record["number"]), str(record["sha256"])
                self._take_up(file)
            else:
                lines = sum(1 for _ in _lines(file))
                self._number = _first(file) + lines - 1
                self._head = hashlib.sha256(last).hexdigest()
                trouble = _incident("damaged", file, last)
            break
        if trouble is not None:
            log.error("audit: %s of %s", trouble["params"]["what"], trouble["params"]["file"])
            if self._file is None:
                self._begin_file()
            self.append([{**trouble, "ts": self._wall()}])

    def _take_up(self, file: Path) -> None:
        handle = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        info = os.fstat(handle)
        self._file, self._size, self._day = handle, info.st_size, int(info.st_mtime // 86_400)

    def _begin_file(self) -> None:
        file = self.path / f"audit-{self._number + 1:012d}.jsonl"
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._forget_file()
        self._file, self._size, self._day = handle, 0, self._today()
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)  # else the file's name may be gone after a power cut, with all in it
        finally:
            os.close(directory)

    def _forget_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # the disk's trouble was told by whoever wrote
                os.ftruncate(self._file, self._size)
            os.close(self._file)
        self._file = None

    def _today(self) -> int:
        return int(self._wall() // 86_400)

    def _files(self) -> list[Path]:
        return sorted(self.path.glob(FILES))


def read_files(paths: Sequence[Path]) -> Iterator[Record]:
    """All records of these files, in the order of their names."""
    for path in sorted(paths):
        yield from _records(path)


def _records(file: Path) -> Iterator[Record]:
    """One for each whole line; a line that is no record is told as such."""
    for line in _lines(file):
        yield parse(line) or {"unreadable": ascii(line[:200])}


def _lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while line := stream.readline(MAX_LINE_BYTES):
            if line.endswith(b"\n"):  # else it is being written, or torn
                yield line[:-1]


def _first(file: Path) -> int:
    """The position of its first record, from its name."""
    number = file.stem.partition("-")[2]
    return int(number) if number.isdigit() else 1


def _last_line(file: Path) -> bytes | None:
    last: bytes | None = None
    for line in _lines(file):
        last = line
    return last


def _cut_torn_end(file: Path) -> Record | None:
    """What to write down of it; None where the last line is whole."""
    content = file.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole == len(content):
        return None
    torn = content[whole:]
    handle = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.ftruncate(handle, whole)
        os.fsync(handle)
    finally:
        os.close(handle)
    return _incident("torn end", file, torn)


def _incident(what: str, file: Path, content: bytes) -> Record:
    return {
        "v": 1,
        "stage": "recovered",
        "verb": "audit",
        "target": {"kind": "audit", "id": file.name},
        "params": {
            "what": what,
            "file": file.name,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        },
        "outcome": {"status": None, "code": "audit_recovered"},
    }


def _intact(record: Record) -> bool:
    try:
        return isinstance(record.get("number"), int) and record.get("sha256") == digest(record)
    except (TypeError, ValueError, RecursionError):
        return False


def _write(handle: int, content: bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(handle, view, at)
        view, at = view[written:], at + written
