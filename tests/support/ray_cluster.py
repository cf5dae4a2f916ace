"""A Ray cluster for tests that leaves nothing behind: processes are found by a mark in their environment."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from support.processes import alive

#: Unix sockets of Ray lie below: a path may not be long.
PARENT = Path("/tmp")
MARK = "INFER_TEST_RAY"


class RayCluster:
    """``environment`` is what the server needs to join it."""

    def __init__(self, *, auth: bool = True) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ray-", dir=PARENT))
        (self.directory / "ray").mkdir()
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(16).hex()}
        self.environment = {
            "RAY_TMPDIR": str(self.directory),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
            MARK: self.directory.name,
            **(token if auth else {"RAY_AUTH_MODE": "disabled"}),
        }
        with (self.directory / "nodes.log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("ray_nodes.py"))],
                env={**os.environ, **self.environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            self.address: str = self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, *order: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self.directory / "nodes.log").read_text()[-3000:]
        return json.loads(line)

    def processes(self) -> list[int]:
        """All that were started for it, or by a server that joined it."""
        wanted = f"{MARK}={self.directory.name}".encode()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if wanted in (entry / "environ").read_bytes().split(b"\0") and alive(int(entry.name)):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def workers(self) -> list[int]:
        """Replica processes among them."""
        found: list[int] = []
        for pid in self.processes():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"infer_engine.replica.worker" in command:
                found.append(pid)
        return found

    def close(self) -> None:
        deadline_s = time.monotonic() + 30
        while left := self.processes():
            assert time.monotonic() < deadline_s, f"still there: {left}"
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.1)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
