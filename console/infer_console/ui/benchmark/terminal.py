"""A real console in a pseudo-terminal that answers its questions and notes what came when."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Self

from infer_console.terminal.link import QUESTION

COLUMNS, ROWS = 200, 50
READ_BYTES = 1 << 16
END_S = 10.0
ANSWER = b"\x1b[1;1R"
_RUN = "import sys; from infer_console.cli import main; sys.exit(main())"
_TICKS = os.sysconf("SC_CLK_TCK")


class Chunk(NamedTuple):
    """What one read gave, and when (monotonic seconds)."""

    at: float
    data: bytes


class TerminalError(Exception):
    """The console did not do what is to be measured; ``str()`` says what."""


class ConsoleInTerminal:
    """Use as a context manager: leaving it ends the console."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        columns: int = COLUMNS,
        rows: int = ROWS,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``env`` is added to this process's own; a variable that is empty is taken out."""
        self.columns, self.rows = columns, rows
        self._chunks: list[Chunk] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._asked = b""
        #: While set nothing is read.
        self.stalled = threading.Event()
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
        environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8", **env}
        environment = {name: value for name, value in environment.items() if value}
        self.started_s = time.monotonic()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _RUN, *arguments],
                stdin=follower,
                stdout=follower,
                stderr=follower,
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(follower)
        self._reader = threading.Thread(target=self._read, name="bench-terminal", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stalled.clear()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(END_S)
        self._stop.set()
        self._reader.join(END_S)
        os.close(self._leader)

    def send(self, keys: str) -> float:
        """Type; returns the moment."""
        at = time.monotonic()
        os.write(self._leader, keys.encode())
        return at

    def chunks(self) -> list[Chunk]:
        with self._lock:
            return list(self._chunks)

    def forget(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self._chunks.clear()

    @property
    def written_bytes(self) -> int:
        with self._lock:
            return sum(len(chunk.data) for chunk in self._chunks)

    def cpu_s(self) -> float:
        """Seconds of a core that the console has used, its threads included."""
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        with open(f"/proc/{self.process.pid}/statm", encoding="utf-8") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def _read(self) -> None:
        while not self._stop.is_set():
            if self.stalled.is_set():
                time.sleep(0.01)
                continue
            ready, _, _ = select.select([self._leader], [], [], 0.05)
            if not ready:
                continue
            try:
                data = os.read(self._leader, READ_BYTES)
            except OSError:  # the console has gone
                return
            at = time.monotonic()
            with self._lock:
                self._chunks.append(Chunk(at, data))
            self._answer(data)

    def _answer(self, data: bytes) -> None:
        """As a terminal does; a question may lie across two reads."""
        question = QUESTION.encode()
        seen = self._asked + data
        self._asked = seen[-(len(question) - 1) :]
        count = seen.count(question)
        if count:
            os.write(self._leader, ANSWER * count)
            if seen.endswith(question):
                self._asked = b""
