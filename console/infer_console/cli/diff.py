"""diff: what differs between two times, or two replicas, in a flight recorder or in a recording."""

import io
import shutil
import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from infer_console.cli import codes
from infer_console.cli.call import call
from infer_console.cli.recordings import open_recording
from infer_console.cli.verb import Verb, json_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from infer_console.sources.client import EngineClient
    from infer_console.state.picture import Picture
    from infer_console.view.diff import Side

#: The width of a table that goes to no terminal.
WIDTH = 100


def _diff(arguments: Namespace) -> int:
    from infer_console.cli.output import complain, note
    from infer_console.view.diff import SideError

    try:
        if arguments.recording is None:
            return _diff_live(arguments)
        recording = open_recording(arguments.recording)
        if recording is None:
            return codes.ERROR
        recording.start()
        try:
            recording.done.wait()
            span = recording.timeline.span()
            end_at = span[1] if span is not None else 0.0
            sides = [_side(recording.timeline.picture, word, end_at) for word in (arguments.a, arguments.b)]
        finally:
            recording.stop()
        if recording.trouble:
            note(recording.trouble)
        _print_diff(sides, as_json=arguments.json)
    except SideError as error:
        complain(str(error))
        return codes.USAGE
    return codes.OK


def _side(picture_at: "Callable[[float], Picture | None]", word: str, now: float) -> "Side":
    from infer_console.view.diff import parse_side, side_of

    replica, at = parse_side(word, now)
    return side_of(word, picture_at(now if at is None else at), replica)


def _diff_live(arguments: Namespace) -> int:
    """What the flight recorder has of both times, its newest for now."""
    from infer_console.past.flight import MOST_BYTES, PIECE_S, FlightRecords
    from infer_console.past.load import Loader, load
    from infer_console.past.tape import Tape
    from infer_console.past.timeline import Timeline
    from infer_console.recording import RecordingReader
    from infer_console.view.diff import parse_side

    async def work(client: "EngineClient") -> int:
        now = await client.now()
        moments = [parse_side(word, now)[1] or now for word in (arguments.a, arguments.b)]
        timeline = Timeline(client.target.url)
        flight = FlightRecords(timeline, client.target.url, time.monotonic)
        for at in dict.fromkeys(moments):
            content = await flight.read(client, at - PIECE_S, at)
            tape = Tape(MOST_BYTES)
            loader = Loader(tape, client.target.url)
            load(RecordingReader(io.BytesIO(content), loader.aside).messages(), loader)
            timeline.add_piece(tape)
        sides = [_side(timeline.picture, word, now) for word in (arguments.a, arguments.b)]
        _print_diff(sides, as_json=arguments.json)
        return codes.OK

    return call(arguments, work)


def _print_diff(sides: "list[Side]", *, as_json: bool) -> None:
    from infer_console.cli.output import print_json, print_line
    from infer_console.view.diff import diff_document, diff_rows
    from infer_console.view.row import plain

    if as_json:
        print_json(diff_document(sides[0], sides[1]))
        return
    width = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
    for row in diff_rows(sides[0], sides[1], width):
        print_line(plain(row).rstrip())


def _diff_arguments(parser: ArgumentParser) -> None:
    side = "a replica (r2), a time (now, now-10m, 03:05:10), or a replica at a time (now-10m/r2)"
    parser.add_argument("a", metavar="A", help=side)
    parser.add_argument("b", metavar="B", help="the same")
    parser.add_argument("--recording", metavar="FILE", help="of a recording, whose end is now")
    json_option(parser)


VERBS = (
    Verb(
        name="diff", help="what differs between two times or replicas", arguments=_diff_arguments, run=_diff
    ),
)
