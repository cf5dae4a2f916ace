"""A real console in a pseudo-terminal, attached to a server and looking closely at its first replica."""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

from infer_engine.benchmark.errors import BenchError

COLUMNS, ROWS = 120, 40
START_S = 30.0
END_S = 10.0
POLL_S = 0.1
READ_BYTES = 1 << 16
#: The replica screen's key with the one that draws all anew, and what it shows that no other does.
REPLICA_KEY, SEEN = b"2\x0c", b"ROSTER"
_RUN = "import sys; from infer_console.cli import main; sys.exit(main())"


class ConsoleProcess:
    """Everything that it writes is read and counted, as a terminal would."""

    def __init__(self, control_url: str) -> None:
        self.written_bytes = 0
        self._tail = b""
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.set_blocking(self._leader, False)
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _RUN, "--connect", control_url, "--read-only"],
                stdin=follower,
                stdout=follower,
                stderr=follower,
                env=environment,
                start_new_session=True,
            )
        except OSError:
            os.close(self._leader)
            raise
        finally:
            os.close(follower)
        asyncio.get_running_loop().add_reader(self._leader, self._read)

    @property
    def pid(self) -> int:
        return self.process.pid

    async def look_closely(self) -> None:
        """Go to the replica screen; return when its roster is on the screen."""
        loop = asyncio.get_running_loop()
        deadline_s, pressed_s = loop.time() + START_S, 0.0
        while SEEN not in self._tail:
            if self.process.poll() is not None:
                raise BenchError(f"a console ended with {self.process.returncode}: {self._tail[-500:]!r}")
            if loop.time() > deadline_s:
                raise BenchError(f"a console shows no roster within {START_S:.0f} s")
            if self.written_bytes and loop.time() - pressed_s > 1.0:
                pressed_s = loop.time()
                os.write(self._leader, REPLICA_KEY)
            await asyncio.sleep(POLL_S)

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL to its group."""
        try:
            self.process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    while self.process.poll() is None:  # noqa: ASYNC110 - a child has no event to wait for
                        await asyncio.sleep(POLL_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.process.wait(END_S)
        finally:
            asyncio.get_running_loop().remove_reader(self._leader)
            os.close(self._leader)

    def _read(self) -> None:
        try:
            data = os.read(self._leader, READ_BYTES)
        except OSError:  # the terminal's other side is closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._leader)
            return
        self.written_bytes += len(data)
        self._tail = (self._tail + data)[-READ_BYTES:]
