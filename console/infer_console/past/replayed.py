"""A recording in the place of a collector: the same screens, without a server."""

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from infer_engine.protocol import Command, CommandResult, Problem

from infer_console.past.export import Exported
from infer_console.past.exporting import Exporting
from infer_console.past.load import REPLAY_BYTES, Loader, load
from infer_console.past.tape import Tape
from infer_console.past.timeline import Timeline
from infer_console.recording import RecordingError, open_recording
from infer_console.state.picture import Link, Picture

Answer = CommandResult | Problem
#: The screens are told that often, at most, that more was read.
WAKE_S = 0.25


class ReplayedRecording:
    """Reads on a thread of its own, from ``start`` to ``stop``. Opening raises OSError or RecordingError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file, self._reader = open_recording(path)
        self._size = path.stat().st_size
        self._url = path.name
        self.timeline = Timeline(self._url, Tape(REPLAY_BYTES))
        self.header = self._reader.header
        self._loader = Loader(self.timeline.own, self._url)
        self._loader.header(self.header)
        self._reader.aside = self._loader.aside
        self._wake: Callable[[], None] | None = None
        self._woken_s = 0.0
        self._stopping = threading.Event()
        #: It was read to its end.
        self.done = threading.Event()
        self.trouble = ""
        self._thread = threading.Thread(target=self._read, name="recording", daemon=True)
        self._empty = Picture(at=0.0, link=Link(url=self._url, state="starting", message="reading"))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2.0)
        self._file.close()
        return not self._thread.is_alive()

    # --- what the screens need

    @property
    def picture(self) -> Picture:
        """What there is before anything was read. After that, the timeline has all there is."""
        return self._empty

    @property
    def fetching(self) -> str:
        if self.trouble:
            return self.trouble
        if self.done.is_set():
            return ""
        read = self._file.tell() / self._size if self._size and not self._file.closed else 0.0
        return f"reading {min(1.0, read):.0%}"

    def fetch_past(self, at: float) -> None:
        """All there is comes by itself."""

    def on_picture(self, wake: Callable[[], None] | None) -> None:
        self._wake = wake

    def set_interest(self, replicas: Iterable[str], detail: Sequence[str] = ("roster", "blocks")) -> None:
        """A recording has the details that it has."""

    def watch_streams(self, requests: Iterable[str], content: bool = False) -> None:
        """Generated text is in no recording."""

    def list_requests(self, wanted: bool) -> None:
        """What is listed are the rosters that were recorded."""

    def watch_demand(self, wanted: bool) -> None:
        """Who waits is in the rosters that were recorded."""

    def watch_timeline(self, request: str | None) -> None:
        """The timeline has those that the recording has."""

    def watch_sentence(self, text: str | None) -> None:
        """No recording has a tokenizer."""

    def watch_audit(self, wanted: bool) -> None:
        """The timeline has what the recording has of it."""

    def audit_until(self, at: float | None) -> None:
        """The timeline has it."""

    def command(
        self, command: Command, target: str | None = None, version: str | None = None
    ) -> "concurrent.futures.Future[Answer]":
        future: concurrent.futures.Future[Answer] = concurrent.futures.Future()
        future.set_result(
            Problem(status=409, code="recording", title="This is a recording: nothing can be done in it.")
        )
        return future

    def export(
        self, from_at: float, to_at: float, path: Path, *, redact: bool = True
    ) -> "concurrent.futures.Future[Exported]":
        future: concurrent.futures.Future[Exported] = concurrent.futures.Future()
        exporting = Exporting(timeline=self.timeline, from_at=from_at, to_at=to_at, path=path, redact=redact)
        threading.Thread(target=exporting.run_into, args=(future, None), daemon=True).start()
        return future

    # --- on the reading thread

    def _read(self) -> None:
        try:
            load(self._reader.messages(), self._loader, self._goes_on)
        except (RecordingError, OSError) as error:
            self.trouble = str(error)
        else:
            if self._reader.is_truncated:
                self.trouble = (
                    "damaged: the rest is missing" if self._reader.is_damaged else "its end is missing"
                )
            elif self._loader.unfolded or self._reader.skipped:
                left_out = self._loader.unfolded + self._reader.skipped
                self.trouble = f"{left_out} message{'s' * (left_out != 1)} left out"
            elif self.timeline.span() is None and not self._stopping.is_set():
                self.trouble = "nothing is in it"
        self.done.set()
        self.timeline.version += 1
        self._tell()

    def _goes_on(self) -> bool:
        if time.monotonic() - self._woken_s >= WAKE_S:
            self._woken_s = time.monotonic()
            self.timeline.version += 1
            self._tell()
        return not self._stopping.is_set()

    def _tell(self) -> None:
        if (wake := self._wake) is not None:
            wake()
