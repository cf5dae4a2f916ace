"""Verbs that look back: a request's timeline, and recordings."""

import asyncio
import re
import signal
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from infer_engine.protocol import Timeline, TimelineEntry, TtftSplit

from infer_console.cli import codes
from infer_console.cli.call import call
from infer_console.cli.verb import Verb, json_option

if TYPE_CHECKING:
    from infer_console.sources.client import EngineClient

_SPAN = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", re.ASCII)
_UNIT_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0}
#: A recording of what comes is flushed this often: what is lost in a crash is less than that.
FLUSH_S = 1.0


def _timeline(arguments: Namespace) -> int:
    from infer_console.cli.output import print_json

    async def work(client: "EngineClient") -> int:
        timeline = await client.timeline(arguments.id)
        if arguments.json:
            print_json(timeline)
        else:
            print_timeline(timeline)
        return codes.OK

    return call(arguments, work)


def print_timeline(timeline: Timeline) -> None:
    from infer_console.cli.output import print_line, print_table
    from infer_console.cli.tables import print_simulated
    from infer_console.view.format import clock, count

    print_simulated(timeline.simulated)
    print_line(f"{timeline.request}  began {clock(timeline.began_at)}")
    print_table(
        ("AT>", "WHAT", "REPLICA", "TOKENS>", "BLOCKS>", "WHY"),
        [
            (
                f"{entry.at_s:.3f}",
                entry.kind,
                entry.replica or "",
                "" if entry.tokens is None else count(entry.tokens),
                "" if entry.blocks is None else count(entry.blocks),
                _note(timeline, number, entry),
            )
            for number, entry in enumerate(timeline.entries)
        ],
    )
    print_line(f"TTFT {_split(timeline.ttft_split_s)}")


def _note(timeline: Timeline, number: int, entry: TimelineEntry) -> str:
    notes = [entry.reason or ""]
    if entry.omitted:
        notes.append(f"{entry.omitted} chunks before it not shown")
    if timeline.omitted and number == timeline.omitted_after:
        notes.append(f"{timeline.omitted} entries before it not kept")
    return ", ".join(note for note in notes if note)


def _split(split: TtftSplit) -> str:
    from infer_console.view.format import UNKNOWN

    def shown(seconds: float | None) -> str:
        return UNKNOWN if seconds is None else f"{seconds:.3f}"

    parts = ("gateway", "tokenize", "queue", "prefill", "send")
    sums = " + ".join(f"{part} {shown(getattr(split, part))}" for part in parts)
    total = split.total
    if total is None and split.queue is not None and split.prefill is not None:
        # Of test traffic, which comes through no gateway: what is known is all that there was.
        total = sum(getattr(split, part) or 0.0 for part in parts)
    return f"{shown(total)} s = {sums}"


def _record(arguments: Namespace) -> int:
    from infer_console.cli.output import complain, note
    from infer_console.past.files import open_new

    path = Path(arguments.file)
    if path.is_dir() or arguments.file.endswith("/"):
        return _record_for_days(arguments, path)
    try:
        with open_new(path) as file:

            async def work(client: "EngineClient") -> int:
                if arguments.duration is None:
                    size = await _from_recorder(client, file, arguments.last)
                    reaches = await _reaches(client, arguments.last)
                else:
                    size, reaches = await _live(client, file, arguments.duration), ""
                note(f"{path}: {size:,} bytes{reaches}")
                return codes.OK

            code = call(arguments, work)
            is_empty = file.tell() == 0
    except OSError as error:
        complain(f"cannot write {path}: {error.strerror}")
        return codes.ERROR
    if is_empty:
        path.unlink(missing_ok=True)  # nothing came, and what was asked has been answered
    return code


def _record_for_days(arguments: Namespace, directory: Path) -> int:
    """Until SIGTERM, SIGINT or SIGHUP."""
    from infer_console.cli.output import complain, note
    from infer_console.past.headless import HeadlessRecorder, Retention

    if arguments.last is not None or arguments.duration is not None:
        complain("--last and --duration are for one file; a directory is recorded into until this is ended")
        return codes.USAGE
    retention = Retention(
        max_bytes=arguments.max_mib * 1024 * 1024, max_age_s=arguments.keep, file_s=arguments.rotate
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        complain(f"cannot write {directory}: {error.strerror}")
        return codes.ERROR

    async def work(client: "EngineClient") -> int:
        recorder = HeadlessRecorder(client, directory, retention, note)
        recording = asyncio.create_task(recorder.run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, recording.cancel)
        with suppress(asyncio.CancelledError):
            await recording
        return codes.ERROR if recorder.unwritten else codes.OK

    return call(arguments, work)


async def _from_recorder(client: "EngineClient", file: BinaryIO, last_s: float | None) -> int:
    size = 0
    from_at = None if last_s is None else await client.now() - last_s
    async with aclosing(client.recording(from_at, None)) as chunks:
        async for chunk in chunks:
            size += file.write(chunk)
    return size + await _beside(client, file, from_at)


async def _reaches(client: "EngineClient", last_s: float | None) -> str:
    """From when on there is something, where that is later than what was asked for, or nothing was."""
    from infer_console.past.when import stamp

    recorder = (await client.state()).fleet.recorder
    from_at = recorder.from_at if recorder is not None else None
    if from_at is None or (last_s is not None and from_at <= await client.now() - last_s):
        return ""
    return f", from {stamp(from_at)} on: the flight recorder has nothing from before"


async def _beside(client: "EngineClient", file: BinaryIO, from_at: float | None) -> int:
    """The audit of that time as one more frame: the recorder has the timelines already."""
    import zstandard

    from infer_console.past.gather import gather

    lines = [line async for line in gather(client, from_at, None, timelines=False)]
    if not lines:
        return 0
    return file.write(zstandard.ZstdCompressor().compress(b"\n".join(lines) + b"\n"))


async def _live(client: "EngineClient", file: BinaryIO, duration_s: float) -> int:
    """Everything that a watcher of all replicas is told, for so long."""
    from infer_console.past.gather import gather
    from infer_console.recording import Header, RecordingWriter
    from infer_console.sources.interest import DETAILS, MAX_REPLICAS

    hello = await client.hello()
    replicas = [each.id for each in (await client.state()).replicas][:MAX_REPLICAS]
    began_at = await client.now()
    header = Header(epoch=hello.epoch, made_at=time.time(), simulated=hello.fleet.simulated)
    with RecordingWriter(file, header) as writer:
        flushed_s = time.monotonic()
        try:
            async with asyncio.timeout(duration_s), client.watch(replicas, DETAILS, 2.0) as stream:
                async for text in stream.messages():
                    writer.write(text)
                    if time.monotonic() - flushed_s > FLUSH_S:
                        writer.flush()
                        flushed_s = time.monotonic()
        except TimeoutError:
            pass  # that long it was to take
        async for line in gather(client, began_at, None):
            writer.aside(line)
    return file.tell()


def _span(given: str) -> float:
    match = _SPAN.fullmatch(given)
    seconds = float(match[1]) * _UNIT_S[match[2]] if match else 0.0
    if not 0 < seconds <= 86_400:
        raise ArgumentTypeError(f"{given!r} was given, allowed is a time up to a day, like 90s, 10m or 1h")
    return seconds


def _days(given: str) -> float:
    days = given.removesuffix("d")
    if given.endswith("d") and days.isascii() and days.isdigit() and 1 <= int(days[:6]) <= 3_650:
        return float(days) * 86_400.0
    return _span(given)


def _mib(given: str) -> int:
    if not (given.isascii() and given.isdigit()) or not 1 <= int(given[:9]) <= 16 * 1024 * 1024:
        raise ArgumentTypeError(f"{given!r} was given, allowed is a whole number of MiB from 1")
    return int(given)


def _timeline_arguments(parser: ArgumentParser) -> None:
    json_option(parser)
    parser.add_argument("id", metavar="ID")


def _record_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE|DIR",
        help="a new file, like incident.icr (any name will do); or a directory, to record into for days",
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--last",
        type=_span,
        metavar="TIME",
        help="what the flight recorder has of the last 10m, 1h, …; all of it where this is not given",
    )
    either.add_argument("--duration", type=_span, metavar="TIME", help="what comes from now on, for so long")

    parser.add_argument(
        "--keep",
        type=_days,
        default=7 * 86_400.0,
        metavar="TIME",
        help="in a directory: remove files older than this (default 7d)",
    )
    parser.add_argument(
        "--max-mib",
        type=_mib,
        default=4_096,
        metavar="MIB",
        help="in a directory: and the oldest when all are larger than this (default 4096)",
    )
    parser.add_argument(
        "--rotate",
        type=_span,
        default=3_600.0,
        metavar="TIME",
        help="in a directory: begin a new file this often (default 1h)",
    )


VERBS = (
    Verb(
        name="timeline",
        help="what happened to a request, and where its time to first token went",
        arguments=_timeline_arguments,
        run=_timeline,
    ),
    Verb(
        name="record",
        help="write what was, or what comes, into a recording",
        arguments=_record_arguments,
        run=_record,
    ),
)
