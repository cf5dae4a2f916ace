"""A replica as a process of this machine.

The child gets its configuration as one line on stdin; the pipe stays open, and its end is how the child
learns that the parent died. It lives in its own session, so that a ctrl-C in the parent's terminal is the
parent's alone.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from infer_engine.replica.messages import ReplicaConfig
from infer_engine.replica.oom import oom_kills

#: How long each way of asking a process to end may take before the next, harder one.
GRACE_S = 2.0
#: A log that has grown beyond this is started afresh with the next process.
MAX_LOG_BYTES = 1 << 20
#: What is shown of a log when its process died.
TAIL_LINES = 12
TAIL_BYTES = 4096


def default_threads(replicas: int) -> int:
    """Compute threads of one of ``replicas`` that share this machine's cores."""
    return max(1, len(os.sched_getaffinity(0)) // replicas if hasattr(os, "sched_getaffinity") else 1)


def child_environment(threads: int, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Thread pools sized before any library reads its size; idle threads sleep instead of spinning."""
    count = str(threads)
    return {
        **base,
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_BLOCKTIME": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }


class LocalProcess:
    """One running replica process. Whoever has it calls ``stop`` (or sees ``wait`` return) before letting
    go."""

    def __init__(self, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self._process = process
        self._log_path = log_path
        self._oom_kills = oom_kills()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """The exit code (negative: the signal), once it has ended and was reaped."""
        return await self._process.wait()

    def hang_up(self) -> None:
        """Close its lifeline: it ends within a second, whatever it is doing."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def stop(self) -> int | None:
        """End it: by closing the lifeline, then SIGTERM, then SIGKILL to its whole session. Takes at most
        three times GRACE_S; the exit code, or None if even that did not end it (stuck in the kernel)."""
        self.hang_up()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self._signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    return await self._process.wait()
        return None

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def log_tail(self) -> str:
        """The last lines that it wrote to stderr."""
        try:
            with self._log_path.open("rb") as log:
                log.seek(max(0, self._log_path.stat().st_size - TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except OSError as error:
            return f"(no log: {error.strerror})"
        return "\n".join(text.splitlines()[-TAIL_LINES:])

    def cpu_s(self) -> float | None:
        """Seconds of CPU it has used, in user and kernel mode; None where /proc does not tell."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def oom_killed(self) -> bool | None:
        """Whether, since it was started, the kernel killed somebody here for want of memory; None where that
        is not told."""
        now = oom_kills()
        return None if now is None or self._oom_kills is None else now > self._oom_kills

    def cause(self) -> str | None:
        return None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _open_log(path: Path) -> int:
    fresh = path.exists() and path.stat().st_size > MAX_LOG_BYTES
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if fresh else 0), 0o600)


async def launch(
    config: ReplicaConfig, log_path: Path, threads: int, base: Mapping[str, str] = os.environ
) -> LocalProcess:
    """Start the process, in the environment ``base``, and send it ``config``. OSError when it cannot be
    started."""
    log = _open_log(log_path)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "infer_engine.replica.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=child_environment(threads, base),
            start_new_session=True,
        )
    finally:
        os.close(log)
    if process.stdin is None:
        raise OSError("the process was started without a stdin pipe")
    process.stdin.write(msgspec.json.encode(config) + b"\n")
    with contextlib.suppress(ConnectionError):  # it died at once: wait() tells
        await process.stdin.drain()
    return LocalProcess(process, log_path)
