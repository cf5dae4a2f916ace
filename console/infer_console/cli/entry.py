"""From the command line's words to a verb, and from what went wrong to an exit code."""

import argparse
import os
import sys
from collections.abc import Sequence

from infer_console import __version__
from infer_console.cli import codes
from infer_console.cli.registry import VERBS
from infer_console.cli.tui import run_tui, tui_arguments

DESCRIPTION = "Terminal dashboard and operator console for LLM inference."
EPILOG = """\
Without a verb: the console. It connects to --connect URL, else to INFER_CONSOLE_CONNECT, else to the current
context, else it starts an engine of its own. URLs: unix:///path, http(s)://HOST:PORT.
Exit codes: 0 ok, 1 error, 2 usage, 3 unreachable, 4 denied, 5 conflict, 6 timed out, 7 partial."""


def main(argv: Sequence[str] | None = None) -> int:
    """The ``infer-console`` command; returns its exit code."""
    arguments = build_parser().parse_args(argv)
    arguments.connect = [*arguments.connect_before, *getattr(arguments, "connect_after", [])]
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return codes.INTERRUPTED
    except BrokenPipeError:
        # Whoever read us is gone. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return codes.PIPE_CLOSED
    return code


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="infer-console",
        description=DESCRIPTION,
        epilog=EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"infer-console {__version__}")
    _connect_option(parser, "connect_before", default=[])
    tui_arguments(parser)
    parser.set_defaults(run=run_tui)
    verbs = parser.add_subparsers(metavar="VERB", title="verbs")
    for verb in VERBS:
        sub = verbs.add_parser(verb.name, help=verb.help, description=verb.help, allow_abbrev=False)
        if verb.connects:
            # Its own name: a subparser's value would replace the one given before the verb.
            _connect_option(sub, "connect_after", default=[])
        verb.arguments(sub)
        sub.set_defaults(run=verb.run)
    return parser


def _connect_option(parser: argparse.ArgumentParser, name: str, default: list[str]) -> None:
    parser.add_argument(
        "--connect",
        dest=name,
        action="append",
        default=default,
        metavar="URL",
        help="the engine server to speak to: unix:///path or http(s)://HOST:PORT",
    )
