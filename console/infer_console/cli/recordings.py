"""Verbs over recordings: replay one, write a part of one."""

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from infer_console.cli import codes
from infer_console.cli.tui import display_of, display_options, is_terminal
from infer_console.cli.verb import Verb

if TYPE_CHECKING:
    from infer_console.past.replayed import ReplayedRecording
    from infer_console.state.picture import Picture

MAX_SPEED = 1_000.0


def _replay(arguments: Namespace) -> int:
    from infer_console.cli.output import complain

    recording = open_recording(arguments.file)
    if recording is None:
        return codes.ERROR
    if not arguments.json and (
        not (is_terminal(sys.stdin) and is_terminal(sys.stdout)) or os.environ.get("TERM") == "dumb"
    ):
        recording.stop()
        complain("replaying needs a terminal that can draw; for scripts: --json")
        return codes.USAGE
    recording.start()
    try:
        if arguments.json:
            return _print_moment(recording, arguments.at)
        from infer_console.ui.app import run_app

        return run_app(
            recording,
            embedded=None,
            read_only=True,
            display=display_of(arguments),
            past=recording,
            replay_speed=arguments.speed,
            replay_at=arguments.at,
        )
    finally:
        recording.stop()


def open_recording(file: str) -> "ReplayedRecording | None":
    from infer_console.cli.output import complain
    from infer_console.past.replayed import ReplayedRecording
    from infer_console.recording import RecordingError

    try:
        return ReplayedRecording(Path(file))
    except OSError as error:
        complain(f"cannot read {file}: {error.strerror}")
    except RecordingError as error:
        complain(f"{file}: {error}")
    return None


def _print_moment(recording: "ReplayedRecording", at: str | None) -> int:
    """The status document of that moment, the end's where none is given."""
    from infer_engine.protocol import Status

    from infer_console.cli.output import complain, note, print_json

    recording.done.wait()
    try:
        picture = _picture_at(recording, at or "now")
    except ValueError as error:
        complain(f"--at: {error}")
        return codes.USAGE
    if recording.trouble:
        note(recording.trouble)
    if picture is None or picture.fleet is None or picture.totals is None:
        complain("that time is not in the recording")
        return codes.ERROR
    print_json(
        Status(
            fleet=picture.fleet,
            replicas=[replica.status for replica in picture.replicas.values()],
            totals=picture.totals,
            alarms=list(picture.alarms),
        )
    )
    return codes.OK


def _picture_at(recording: "ReplayedRecording", word: str) -> "Picture | None":
    from infer_console.past.when import moment

    span = recording.timeline.span()
    return None if span is None else recording.timeline.picture(moment(word, span[1]))


# --- export


def _export(arguments: Namespace) -> int:
    from infer_console.cli.output import complain, note
    from infer_console.cli.progress import PERIOD_S, Progress
    from infer_console.past.exporting import Exporting
    from infer_console.past.when import span
    from infer_console.recording import RecordingError

    recording = open_recording(arguments.recording)
    if recording is None:
        return codes.ERROR
    recording.start()
    try:
        with Progress(sys.stderr) as progress:
            while not recording.done.wait(PERIOD_S):
                progress.say(recording.fetching)
        kept = recording.timeline.span()
        if kept is None:
            complain(f"{arguments.recording}: nothing is in it")
            return codes.ERROR
        from_at, to_at = span(arguments.span, kept[1]) if arguments.span else kept
        from_at = max(from_at, kept[0])
        with Progress(sys.stderr) as progress:
            done = Exporting(
                timeline=recording.timeline,
                from_at=from_at,
                to_at=to_at,
                path=Path(arguments.file),
                redact=not arguments.no_redact,
                reached=lambda at: progress.say(f"writing {_share(at, from_at, to_at):.0%}"),
            ).run(None)
        note(f"{arguments.file}: {done.messages:,} messages, {done.bytes:,} bytes")
        if recording.trouble:
            note(f"{arguments.recording}: {recording.trouble}")
        return codes.OK
    except ValueError as error:
        complain(f"--span: {error}")
        return codes.USAGE
    except RecordingError as error:
        complain(str(error))
        return codes.ERROR
    except OSError as error:
        complain(f"cannot write {arguments.file}: {error.strerror}")
        return codes.ERROR
    finally:
        recording.stop()


def _share(at: float, from_at: float, to_at: float) -> float:
    return min(1.0, max(0.0, (at - from_at) / (to_at - from_at))) if to_at > from_at else 0.0


# --- options


def _replay_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a recording (.icr)")
    parser.add_argument(
        "--speed",
        type=_speed,
        default=1.0,
        metavar="N",
        help=f"seconds of it in one, up to {MAX_SPEED:g} (default 1)",
    )
    parser.add_argument(
        "--at",
        type=_moment,
        metavar="TIME",
        help="begin there: 03:05:10 (UTC), now-10m (before its end) or Unix seconds",
    )
    parser.add_argument("--json", action="store_true", help="no screens: the status document of that moment")
    display_options(parser)


def _moment(given: str) -> str:
    """The word itself: what it means is known when the recording's end is."""
    from infer_console.past.when import moment

    try:
        moment(given, 1e9)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    return given


def _speed(given: str) -> float:
    try:
        speed = float(given)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= MAX_SPEED:
        raise ArgumentTypeError(f"{given!r} was given, allowed is a number up to {MAX_SPEED:g}")
    return speed


def _export_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("recording", metavar="RECORDING", help="the recording to take it from")
    parser.add_argument("file", metavar="FILE", help="a new file")
    parser.add_argument("--span", metavar="FROM..TO", help="like now-10m..now; all of it")
    parser.add_argument(
        "--no-redact", action="store_true", help="leave request ids and tenants as they are, unhashed"
    )


VERBS = (
    Verb(
        name="replay",
        help="show a recording on the console's screens",
        arguments=_replay_arguments,
        run=_replay,
        connects=False,
    ),
    Verb(
        name="export",
        help="write a part of a recording, without names",
        arguments=_export_arguments,
        run=_export,
        connects=False,
    ),
)
