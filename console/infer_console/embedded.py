"""The console's own engine: an engine server started as a child on a private socket, spoken to like any
other.

It ends with the console, however that ends: ``stop`` asks it, then insists; and when the console is killed,
the child sees the end of its lifeline (a pipe to its stdin) and ends itself. What it leaves in its private
directory then is removed by the next console that starts an engine.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from infer_engine.settings import DEFAULT_MODEL, ServerSettings

from infer_console.connect import EMBEDDED_PREFIX, Target, parse_url, private_directory_place
from infer_console.credentials import without_token
from infer_console.sources.engine import EngineStatus

#: How long the child may take to end after its lifeline ended, and then after SIGTERM.
STOP_TIMEOUT_S = 5.0
TERM_TIMEOUT_S = 0.5
#: Lines of the child's log that are shown when it dies, and the bytes they are looked for in.
LOG_LINES = 12
LOG_TAIL_BYTES = 16 * 1024
#: A log that grew beyond this begins anew.
MAX_LOG_BYTES = 8 * 1024 * 1024
#: How long the log of an engine that failed is kept.
KEEP_FAILED_S = 7 * 86_400.0
#: A console that is older than this has its lock and its log.
STARTED_S = 60.0
#: Files of the private directory: locked while its console lives; the child's log; put there when it failed.
LOCK, LOG, FAILED = "lock", "engine.log", "failed"
#: Longest first line that is taken from the child.
MAX_HELLO_BYTES = 64 * 1024


class EmbeddedError(Exception):
    """The engine could not be started; ``str()`` says why and what to do."""


class Listening(msgspec.Struct, frozen=True):
    """The one line that the server prints when it listens."""

    control: str
    gateway: str
    pid: int


class EmbeddedEngine:
    """Use as a context manager: entering starts the child and returns at once, leaving ends it. ``settings``
    are plain values of ``ServerSettings``, its control socket excepted."""

    def __init__(self, settings: dict[str, Any] | None = None) -> None:
        self._settings = settings if settings is not None else default_settings()
        self._directory: Path | None = None
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._listening: Listening | None = None
        self._stopping = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def target(self) -> Target:
        """Where its control API will be, whether it listens yet or not."""
        return parse_url(f"unix://{self._private_directory() / 'control.sock'}", "embedded engine")

    @property
    def log_path(self) -> Path:
        return self._private_directory() / LOG

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def gateway_url(self) -> str | None:
        """Where clients send requests; None until it listens."""
        return self._listening.gateway if self._listening is not None else None

    def start(self) -> None:
        """Start the child. Raise EmbeddedError when that cannot even be tried."""
        settings = {**self._settings, "control": self.target.url}
        command = [sys.executable, "-m", "infer_engine", "serve"]
        command += ["--settings", msgspec.json.encode(settings).decode(), "--lifeline"]
        try:
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=without_token(os.environ),
                    start_new_session=True,  # keys and hang-ups of our terminal are ours to handle
                )
        except OSError as error:
            self._remove_directory()
            raise EmbeddedError(f"cannot start the engine: {error}") from error
        threading.Thread(target=self._read_hello, name="embedded-hello", daemon=True).start()

    def status(self) -> EngineStatus:
        """How it is doing, in words for the operator; the words come from the child. Cheap; any thread."""
        process = self._process
        if process is None:
            return EngineStatus("ended", "the engine was not started")
        code = process.poll()
        if code is not None and not self._stopping:
            tail = "\n".join(self._log_tail(LOG_LINES)) or "it said nothing"
            return EngineStatus("ended", f"the engine ended ({_ending(code)}); log {self.log_path}:\n{tail}")
        self._bound_log()
        if self._listening is not None:
            return EngineStatus("listening")
        last = self._log_tail(1)
        return EngineStatus("starting", f"starting the engine: {last[0]}" if last else "starting the engine")

    def stop(self) -> None:
        """End the child and what it started: by the end of its lifeline, then by SIGTERM, then by SIGKILL.
        Leaves no file, except the log of a child that had failed by itself. Does nothing the second time."""
        process, self._process = self._process, None
        if process is None:
            return
        failed = process.poll() not in (None, 0)
        self._stopping = True
        if process.stdin is not None:
            with contextlib.suppress(OSError):  # nothing was written, so nothing is lost
                process.stdin.close()
        for timeout_s in (STOP_TIMEOUT_S, TERM_TIMEOUT_S):
            try:
                process.wait(timeout_s)
                break
            except subprocess.TimeoutExpired:
                process.terminate()
        _kill_group(process.pid)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        if not failed:
            self._remove_directory()
        elif self._directory is not None:
            (self._directory / FAILED).touch()
        self._unlock()

    # --- inside

    def _private_directory(self) -> Path:
        if self._directory is None:
            remove_stale_directories()
            self._directory = _make_directory()
            self._lock = _lock(self._directory / LOCK)
        return self._directory

    def _remove_directory(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _read_hello(self) -> None:
        process = self._process
        if process is None or process.stdout is None:
            return
        try:
            line = process.stdout.readline(MAX_HELLO_BYTES)
            if line:
                self._listening = msgspec.json.decode(line, type=Listening)
            while process.stdout.read(MAX_HELLO_BYTES):
                pass  # whatever else it prints must not fill the pipe
        except msgspec.DecodeError as error:
            with self.log_path.open("ab") as log:
                log.write(f"console: the engine's first line was not understood: {error}\n".encode())
        except (OSError, ValueError):
            return  # the pipe was closed by stop()

    def _log_tail(self, lines: int) -> list[str]:
        try:
            with self.log_path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - LOG_TAIL_BYTES))
                text = log.read(LOG_TAIL_BYTES).decode("utf-8", "replace")
        except OSError:
            return []
        return [_words(line) for line in text.splitlines() if line.strip()][-lines:]

    def _bound_log(self) -> None:
        try:
            if self.log_path.stat().st_size > MAX_LOG_BYTES:
                os.truncate(self.log_path, 0)  # the child appends, so its next line comes first
        except OSError:
            return  # it is gone; nothing to bound


def default_settings(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Two replicas of ``INFER_CONSOLE_MODEL`` or the default model; a core's share is left to the console
    where there are enough. Without ``listen`` the server takes its default port, or a free one when that is
    taken."""
    replicas = ServerSettings().replicas
    cores = len(os.sched_getaffinity(0))
    model = environ.get("INFER_CONSOLE_MODEL") or DEFAULT_MODEL
    return {"replicas": replicas, "replica": {"model": model, "threads": max(1, (cores - 1) // replicas)}}


def fetch_model(model: str, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Fetch a model into the cache, with progress on the terminal; silent when it is there. To look takes a
    process of its own, so ``meanwhile`` is called while it does. Raise EmbeddedError when it cannot be
    fetched, after the remedy has been printed."""
    command = [sys.executable, "-m", "infer_engine", "fetch", "--model", model, "--file-only"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as fetching:
        try:
            meanwhile()
            status = fetching.wait()
        except BaseException:  # we are told to end, and it ends too
            fetching.kill()
            raise
    if status != 0:
        raise EmbeddedError("the model could not be fetched, so there is no engine to start")


def _make_directory() -> Path:
    """A new directory of mode 0700 with a path short enough for sockets."""
    place = private_directory_place()
    try:
        return Path(tempfile.mkdtemp(prefix=EMBEDDED_PREFIX, dir=place))
    except OSError as error:
        raise EmbeddedError(f"cannot make a private directory in {place}: {error}") from error


def remove_stale_directories() -> None:
    """Those of consoles that were killed: their lock is free. One that is just starting may have no log, and
    no lock, yet, so without a log it has to be old; without a lock nothing is removed but an empty one."""
    for directory in private_directory_place().glob(f"{EMBEDDED_PREFIX}*"):
        try:
            made = directory.lstat()
            if made.st_uid != os.getuid() or not stat.S_ISDIR(made.st_mode):
                continue
            old = time.time() - made.st_mtime >= STARTED_S
            if not (directory / LOCK).is_file():
                if old:
                    directory.rmdir()
                continue
            failed = directory / FAILED
            if failed.exists() and time.time() - failed.stat().st_mtime < KEEP_FAILED_S:
                continue
            if not old and not (directory / LOG).exists():
                continue
            lock = _lock(directory / LOCK)
        except OSError:
            continue  # it is in use, or another console has just removed it
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _lock(path: Path) -> int:
    """The open, locked file; it stays locked until it is closed, however. OSError when another has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _words(line: str) -> str:
    """A log line for people: the message of a JSON line, any other line as it is."""
    try:
        record = msgspec.json.decode(line.encode(), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return line
    level = str(record.get("level", "INFO"))
    last = str(record.get("exception", "")).strip().splitlines()[-1:]
    return " ".join([*([] if level == "INFO" else [level]), str(record.get("message", line)), *last])


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _kill_group(leader: int) -> None:
    """End what is left of the child's session; normally nothing."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
