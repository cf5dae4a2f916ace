"""Servers as child processes: started, waited for, and ended with everything that they started."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType

import httpx2

from infer_engine.benchmark.errors import BenchError

POLL_S = 0.1
#: How long a server may take to end by itself.
GRACE_S = 10.0
TAIL_BYTES = 3000


def free_port() -> int:
    """A port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """A server on 127.0.0.1, in a process group of its own. Use as a context manager: leaving it ends the
    whole group, however the block was left. ``lifeline``: its stdin is a pipe that ends with this process,
    for those that end by that. ``log`` gets what it writes; without one that is kept until it is stopped."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        lifeline: bool = False,
        log: Path | None = None,
    ) -> None:
        self._log = log.open("w+b") if log else tempfile.TemporaryFile(prefix="bench-server-")  # noqa: SIM115 - closed by stop
        self.started_s = time.monotonic()
        try:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE if lifeline else subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except OSError:
            self._log.close()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_ok(self, url: str, timeout_s: float) -> float:
        """Until ``url`` answers 200: the seconds since the start. BenchError when it ends first or takes
        longer."""
        with httpx2.Client(trust_env=False, timeout=5.0) as client:
            while True:
                if self.process.poll() is not None:
                    raise BenchError(f"the server ended with {self.process.returncode}:\n{self.log_tail()}")
                with contextlib.suppress(httpx2.TransportError):
                    if client.get(url).status_code == 200:
                        return time.monotonic() - self.started_s
                if time.monotonic() - self.started_s > timeout_s:
                    raise BenchError(f"not ready after {timeout_s:.0f} s:\n{self.log_tail()}")
                time.sleep(POLL_S)

    def log_tail(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL to the whole group at once, as when memory runs out; ``stop`` is still to be called."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(GRACE_S)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL to the whole group. May be called more than once."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_S)
        # What it started may outlive it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(GRACE_S)
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._log.close()

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def end_tidily() -> None:
    """Being told to end leaves by an exception, so that what was started ends too."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far; BenchError where Linux does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError as error:
        raise BenchError(f"/proc tells nothing of process {pid}: {error}") from error
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
