"""What a verb is: a name, its options, and what runs."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """``run`` returns the exit code. ``connects`` verbs take ``--connect``."""

    name: str
    help: str
    arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    connects: bool = True


def dry_run_option(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what it would do, and do nothing")


def no_wait_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--no-wait", action="store_true", help="return when it has begun; it goes on by itself"
    )


def json_option(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
