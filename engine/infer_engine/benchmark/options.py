"""The options of a measurement; light, for the command line to know before anything is imported."""

import argparse
from pathlib import Path

from infer_engine.settings import DEFAULT_MODEL


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default=None, metavar="PART,…", help="some parts; --list names them")
    parser.add_argument(
        "--repeats", type=_positive, default=3, metavar="N", help="default 3: the median counts"
    )
    parser.add_argument("--model", default=DEFAULT_MODEL, help="a known name or a GGUF file")
    parser.add_argument("--threads", type=_positive, default=None, metavar="N", help="default: all cores")
    parser.add_argument(
        "--out", type=Path, default=None, metavar="FILE", help="merge the figures into a file"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--list", action="store_true", help="name the parts and how long each takes")
    # For tests of function: the figures mean nothing.
    parser.add_argument("--shrink", type=_positive, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--vocabulary", type=_positive, default=None, help=argparse.SUPPRESS)


def _positive(given: str) -> int:
    try:
        value = int(given)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{given!r} was given, allowed is a whole number from 1 on")
    return value
