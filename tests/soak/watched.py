"""``python tests/soak/watched.py FILE [arguments of infer-console]``: the console, which tells every few
seconds what it holds, one JSON line each. What it does is left alone: a thread looks from beside."""

import asyncio
import gc
import os
import sys
import threading
import time
from pathlib import Path
from typing import TypeVar

import msgspec
from infer_console.cli import main
from infer_console.collector import Collector

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from soak.footprint import footprint

#: How often it tells; for tests that wait for it to see something there is another period.
PERIOD_S = float(os.environ.get("WATCHED_PERIOD_S", "2.0"))
#: Event loops and collectors are looked for this often: all objects are gone through for it.
SEARCH_S = 30.0
T = TypeVar("T")


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """``objects`` are those that Python's collector of garbage follows, counted now and then; ``tape_bytes``
    and ``pieces_bytes`` what the past takes, which is bounded."""

    at_s: float
    rss_bytes: int
    fds: int
    threads: int
    tasks: int
    objects: int
    tape_bytes: int
    pieces_bytes: int
    link: str
    resyncs: int
    #: How many events the picture has, the number of the newest, and how many between its first and that are
    #: not there.
    events: int
    last_event: int
    missing_events: int
    alarms: list[str]

    @property
    def past_bytes(self) -> int:
        return self.tape_bytes + self.pieces_bytes


class Watcher:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._loops: list[asyncio.AbstractEventLoop] = []
        self.collectors: list[Collector] = []
        self._objects = 0
        self._searched_s = -SEARCH_S

    def run(self) -> None:
        began_s = time.monotonic()
        with self._file.open("ab", buffering=0) as file:
            while True:
                time.sleep(PERIOD_S)
                now_s = time.monotonic()
                if now_s - self._searched_s >= SEARCH_S or not self._loops:
                    self._searched_s = now_s
                    self.search()
                file.write(msgspec.json.encode(self._held(now_s - began_s)) + b"\n")

    def search(self) -> None:
        """What was found once stays: objects that the console has frozen are not among those told."""
        found = gc.get_objects()
        self._objects = len(found) + gc.get_freeze_count()
        self._loops = _with(self._loops, _of_type(found, asyncio.SelectorEventLoop))
        self.collectors = _with(self.collectors, _of_type(found, Collector))

    def _held(self, at_s: float) -> Held:
        process = footprint(os.getpid())
        collectors = self.collectors
        pictures = [each.picture for each in collectors]
        return Held(
            at_s=round(at_s, 2),
            rss_bytes=process.rss_bytes,
            fds=process.fds,
            threads=process.threads,
            tasks=sum(len(asyncio.all_tasks(loop)) for loop in self._loops if not loop.is_closed()),
            objects=self._objects,
            tape_bytes=sum(each.timeline.own.bytes for each in collectors),
            pieces_bytes=sum(each.timeline.pieces_bytes for each in collectors),
            link=",".join(each.link.state for each in pictures),
            resyncs=sum(each.link.resyncs for each in pictures),
            # What the console saw itself has no number.
            **_numbered([event.seq for each in pictures[:1] for event in each.events if event.seq]),
            alarms=sorted({alarm.rule for each in pictures for alarm in each.alarms}),
        )


def _numbered(seqs: list[int]) -> dict[str, int]:
    missing = seqs[-1] - seqs[0] + 1 - len(seqs) if seqs else 0
    return {"events": len(seqs), "last_event": seqs[-1] if seqs else 0, "missing_events": missing}


def _of_type(found: list[object], kind: type[T]) -> list[T]:
    """By their own type: asking objects of all sorts what they are may run their code."""
    return [each for each in found if type(each) is kind]


def _with(known: list[T], found: list[T]) -> list[T]:
    return known + [each for each in found if all(each is not one for one in known)]


def read(file: Path) -> list[Held]:
    """What was told so far; half a line at the end is not there yet."""
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return [msgspec.json.decode(line, type=Held) for line in lines]


def _impatient(silence_s: float) -> None:
    """A link that says nothing is stale after so long, and lost after twice that; usually three and six
    seconds."""
    from infer_console.sources import client
    from infer_console.state import link

    link.STALE_AFTER_S = silence_s
    client.SILENCE_S = 2 * silence_s


def search_before_freezing(watcher: Watcher) -> None:
    """The console takes what is there when it has started away from the collector of garbage."""
    from infer_console import heap

    leave_alone = heap.leave_alone

    def search_and_leave_alone() -> None:
        watcher.search()
        leave_alone()

    heap.leave_alone = search_and_leave_alone


if __name__ == "__main__":
    if silence := os.environ.get("WATCHED_SILENCE_S"):
        _impatient(float(silence))
    watcher = Watcher(Path(sys.argv[1]))
    search_before_freezing(watcher)
    threading.Thread(target=watcher.run, name="watcher", daemon=True).start()
    sys.exit(main(sys.argv[2:]))
