"""A real pseudo-terminal with a real screen: runs a program and reads what an operator would see."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyte

TESTS = Path(__file__).parents[1]
#: For a program that imports what is under tests, beside what this process was told to import.
PYTHONPATH = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))

KEYS = {
    "enter": "\r",
    "esc": "\x1b",
    "tab": "\t",
    "space": " ",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "end": "\x1b[F",
    "backspace": "\x7f",
    "ctrl+c": "\x03",
}


def grid(screen: pyte.Screen) -> list[list[tuple[object, ...]]]:
    """Every cell with what makes it look as it does."""
    return [
        [
            (cell.data, cell.fg, cell.bg, cell.bold, cell.italics, cell.underscore, cell.reverse)
            for cell in (screen.buffer[row][column] for column in range(screen.columns))
        ]
        for row in range(screen.lines)
    ]


#: Written behind all that a program wrote, and read by nobody but the reader below. Terminals ignore it.
LAST = b"\x1b]7777;the end\x1b\\"


class Terminal:
    """Owns the child process and ends it. Everything the child writes is kept in ``raw`` (bounded) and drawn
    into a pyte screen by a reader thread."""

    RAW_LIMIT = 32 * 1024 * 1024

    def __init__(
        self,
        argv: Sequence[str],
        *,
        columns: int,
        rows: int,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        answers: bool = False,
    ) -> None:
        """``answers``: say where the cursor is when asked, as terminals do."""
        self.columns, self.rows = columns, rows
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self._lock = threading.Lock()
        self.raw = bytearray()
        #: When each piece of ``raw`` came, and where it ends.
        self.came: list[tuple[float, int]] = []
        environment = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("TEXTUAL", "NO_COLOR", "LINES", "COLUMNS"))
        }
        environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"} | (env or {})
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.tty_before = termios.tcgetattr(follower)
        self._follower = follower
        self.process = subprocess.Popen(
            list(argv),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )
        self._leader = leader
        self._open = [leader, follower]
        #: How long an answer takes, and how many there were.
        self.answer_delay_s = 0.0
        self.answered = 0
        self._answering = threading.Lock()
        #: While set nothing is read, as by a terminal that hangs.
        self.stalled = threading.Event()
        self._read_all = threading.Event()
        if answers:
            self.screen.write_process_input = self._answer  # type: ignore[method-assign]
        self._reader = threading.Thread(target=self._read, name="terminal-reader", daemon=True)
        self._stop = threading.Event()
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        while not self._stop.is_set():
            if self.stalled.is_set():
                time.sleep(0.01)
                continue
            ready, _, _ = select.select([self._leader], [], [], 0.05)
            if not ready:
                continue
            try:
                data = os.read(self._leader, 1 << 16)
            except OSError:
                return
            if not data:
                return
            with self._lock:
                if len(self.raw) < self.RAW_LIMIT:
                    self.raw += data
                    if self.raw.endswith(LAST):
                        del self.raw[-len(LAST) :]
                        self._read_all.set()
                    self.came.append((time.monotonic(), len(self.raw)))
                self._stream.feed(data)

    def _answer(self, data: str) -> None:
        """On the reader's thread, or later on one of its own."""
        if self.answer_delay_s:
            threading.Timer(self.answer_delay_s, self._answer_now, [data]).start()
        else:
            self._answer_now(data)

    def _answer_now(self, data: str) -> None:
        with self._answering:
            self.answered += 1  # before whoever gets it can have ended
            os.write(self._leader, data.encode())

    def unread(self) -> int:
        """Bytes that the program left to be read by the next one."""
        return int.from_bytes(fcntl.ioctl(self._follower, termios.FIONREAD, b"\0" * 4), sys.byteorder)

    def send(self, *keys: str) -> None:
        """Names from KEYS, or text as it stands."""
        for key in keys:
            os.write(self._leader, KEYS.get(key, key).encode())

    def send_bytes(self, data: bytes) -> None:
        os.write(self._leader, data)

    def resize(self, columns: int, rows: int) -> None:
        with self._lock:
            self.columns, self.rows = columns, rows
            self.screen.resize(rows, columns)
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.killpg(self.pid, signal.SIGWINCH)

    def lines(self) -> list[str]:
        with self._lock:
            # Not screen.display: it fails on half a wide character, which a terminal may well show.
            return [
                "".join(line[column].data for column in range(self.columns))
                for line in (self.screen.buffer[row] for row in range(self.rows))
            ]

    def grid(self) -> list[list[tuple[object, ...]]]:
        """Every cell with what makes it look as it does."""
        with self._lock:
            return grid(self.screen)

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines())

    def wait(self, what: str, seen: Callable[[str], object], timeout_s: float = 60.0) -> str:
        """Poll the screen until ``seen(text)`` is true; fails with the screen it saw last."""
        deadline = time.monotonic() + timeout_s
        while True:
            text = self.text()
            if seen(text):
                return text
            if self.process.poll() is not None:
                raise AssertionError(
                    f"program ended ({self.process.returncode}) while waiting for {what}:\n{text}"
                )
            if time.monotonic() > deadline:
                raise AssertionError(f"never saw {what}; the screen was:\n{text}")
            time.sleep(0.05)

    def wait_for(self, pattern: str, timeout_s: float = 60.0) -> str:
        return self.wait(f"/{pattern}/", lambda text: re.search(pattern, text, re.MULTILINE), timeout_s)

    def wait_read(self, data: bytes, timeout_s: float = 60.0) -> None:
        """Poll until ``data`` has come, also after the program's end."""
        deadline = time.monotonic() + timeout_s
        while data not in self.raw:
            assert time.monotonic() < deadline, f"never came: {data!r}"
            time.sleep(0.02)

    def wait_exit(self, timeout_s: float = 60.0) -> int:
        """Its exit status, once all that it wrote has been read: unless the terminal is stalled."""
        status = self.process.wait(timeout_s)
        if not self.stalled.is_set():
            self.read_all(timeout_s)
        return status

    def read_all(self, timeout_s: float = 60.0) -> None:
        """Until all that a program that has ended wrote is in ``raw``."""
        self._read_all.clear()
        os.write(self._follower, LAST)
        assert self._read_all.wait(timeout_s), "what it wrote was never read"

    def tty_now(self) -> list[object]:
        return termios.tcgetattr(self._follower)

    def hang_up(self) -> None:
        """The other end is closed. No signal says so: it is nobody's controlling terminal."""
        self._stop.set()
        self._reader.join(60)
        while self._open:
            os.close(self._open.pop())

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait(60)
        self.hang_up()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def to_replica_and_back(terminal: Terminal) -> None:
    """Of the console on the incident, which is on Fleet."""
    terminal.send("2")
    terminal.wait_for("ROSTER")
    terminal.send("1")
    terminal.wait("the fleet", lambda text: "ROSTER" not in text and "RUN 186" in text)
