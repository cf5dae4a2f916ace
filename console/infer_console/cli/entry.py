"""From the command line's words to a verb, and from what went wrong to an exit code."""

import argparse
import errno
import os
import re
import sys
from argparse import SUPPRESS
from collections.abc import Sequence
from typing import TextIO

from infer_console import __version__
from infer_console.cli import codes
from infer_console.cli.did_you_mean import HelpfulParser
from infer_console.cli.registry import VERBS
from infer_console.cli.tui import read_only_option, run_tui, tui_arguments

DESCRIPTION = "Terminal dashboard and operator console for LLM inference."
EPILOG = """\
Without a verb: the console. It connects to --connect URL, else to INFER_CONSOLE_CONNECT, else to the current
context, else to your server at the default socket of infer-console serve, else to the engine of another
console of yours, else it starts an engine of its own (--embedded: in any case). Verbs look in the same
places.
URLs: unix:///path, http(s)://HOST:PORT, ssh://[USER@]HOST. On TCP a token says who you are: a context or
INFER_CONSOLE_TOKEN_FILE names its file, or INFER_CONSOLE_TOKEN holds it.
Exit codes: 0 ok, 1 error, 2 usage, 3 unreachable, 4 denied, 5 conflict, 6 timed out, 7 partial."""

_NEGATIVE = re.compile(r"-\d+(\.\d+)?(%|b)?", re.ASCII)
#: What writing to a full or broken stdout fails with.
_CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def main(argv: Sequence[str] | None = None) -> int:
    """The ``infer-console`` command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    negative = next((word for word in words if _NEGATIVE.fullmatch(word)), None)
    if "headroom" in words and negative is not None and "--" not in words:
        # argparse would take it for an option and say nothing of headroom.
        return _fail(
            f"headroom: {negative!r} was given, allowed is a percentage of the pool like 10%, or "
            "blocks like 50b",
            codes.USAGE,
        )
    arguments = build_parser().parse_words(words)
    if not _is_open(sys.stdout):
        return _fail("stdout is closed: nowhere to write to", codes.ERROR)
    arguments.connect = [*arguments.connect_before, *getattr(arguments, "connect_after", [])]
    arguments.context = getattr(arguments, "context", None)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return codes.INTERRUPTED
    except BrokenPipeError:
        # Whoever read us is gone. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return codes.PIPE_CLOSED
    except OSError as error:
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _fail(f"cannot write to stdout: {error.strerror}", codes.ERROR)
    return code


def _fail(message: str, code: int) -> int:
    from infer_console.cli.output import complain

    complain(message)
    return code


def _is_open(stream: TextIO | None) -> bool:
    """Python has None where a standard stream was closed before it started."""
    return stream is not None


def build_parser() -> HelpfulParser:
    parser = HelpfulParser(
        prog="infer-console",
        description=DESCRIPTION,
        epilog=EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"infer-console {__version__}")
    _connect_option(parser, "connect_before", default=[])
    _context_option(parser)
    tui_arguments(parser)
    parser.set_defaults(run=run_tui)
    verbs = parser.add_subparsers(metavar="VERB", title="verbs")
    for verb in VERBS:
        sub = verbs.add_parser(verb.name, help=verb.help, description=verb.help, allow_abbrev=False)
        if verb.connects:
            # Its own name: a subparser's value would replace the one given before the verb.
            _connect_option(sub, "connect_after", default=[])
            _context_option(sub)  # keeps the value given before the verb
            read_only_option(sub, default=SUPPRESS)  # keeps the value given before the verb
        verb.arguments(sub)
        sub.set_defaults(run=verb.run, parser=sub)
    return parser


def _connect_option(parser: argparse.ArgumentParser, name: str, default: list[str]) -> None:
    parser.add_argument(
        "--connect",
        dest=name,
        action="append",
        default=default,
        metavar="URL",
        help="the engine server to speak to: unix:///path, http(s)://HOST:PORT or ssh://HOST; or one"
        " that is not ours, to watch it: vllm+http://HOST:PORT, sglang+, llamacpp+, auto+; several as one"
        " fleet: vllm+http://A:8000,B:8000; every address behind a name: dns+vllm://NAME:PORT",
    )


def _context_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--context",
        default=SUPPRESS,
        metavar="NAME",
        help="the engine server of that name in the contexts file",
    )
