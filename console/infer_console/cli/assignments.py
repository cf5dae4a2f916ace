"""KEY=VALUE words of the command line, and the options of commands that change settings by name."""

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable

from infer_console.actions.action import MAX_REVERT_S
from infer_console.actions.params import parse_duration
from infer_console.cli.verb import dry_run_option, json_option

#: Words that lift a limit.
LIFTED = frozenset({"none", "null", "-"})


Setting = int | float | str | None


class AssignmentError(ValueError):
    """``str()`` says which word does not fit, and what would."""


def parse_assignments(words: Iterable[str], allowed: Iterable[str]) -> dict[str, Setting]:
    """``KEY=VALUE`` words by key; numbers become numbers, ``none`` None. Raise AssignmentError."""
    keys, given = tuple(allowed), dict[str, Setting]()
    for word in words:
        key, equals, value = word.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not value.strip():
            raise AssignmentError(f"{word!r} was given, allowed is KEY=VALUE")
        if key not in keys:
            raise AssignmentError(f"{key!r} was given, allowed is one of {', '.join(keys)}")
        if key in given:
            raise AssignmentError(f"{key} was given twice")
        given[key] = _value(value.strip())
    return given


def _value(word: str) -> Setting:
    if word.lower() in LIFTED:
        return None
    share = word.removesuffix("%")
    for kind in (int, float):
        try:
            number = kind(share) / 100 if share != word else kind(share)
        except (ValueError, OverflowError):
            continue
        if isinstance(number, float) and not math.isfinite(number):
            break
        return number
    return word


def change_options(parser: ArgumentParser) -> None:
    parser.add_argument("--revert-after", metavar="DURATION", help="put it back after a while, like 10m")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for those who read it later")
    dry_run_option(parser)
    json_option(parser)


def revert_after_s(arguments: Namespace) -> float | None:
    """Raise AssignmentError when what was given is no duration within bounds."""
    given: str | None = arguments.revert_after
    if given is None:
        return None
    seconds = parse_duration(given)
    if seconds is None or not 1.0 <= seconds <= MAX_REVERT_S:
        raise AssignmentError(f"revert-after: {given!r} was given, allowed is a duration from 1s to 24h")
    return seconds
