"""A mistyped verb, option or choice: the error says what was probably meant, not only all that there is."""

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import NoReturn

_INVALID = re.compile(r"invalid choice: '(?P<given>.*)' \(choose from (?P<choices>.*)\)", re.DOTALL)
#: How alike two words have to be, from 0 to 1.
ALIKE = 0.6
MOST_GIVEN = 40
#: Options of other tools, and what they are called here, where a verb has it.
_MEANT = {
    "--for": ("--duration", "--last"),
    "--since": ("--last",),
    "--qps": ("--rate",),
    "--rps": ("--rate",),
}


class HelpfulParser(argparse.ArgumentParser):
    """Its subparsers are of this kind too; they default ``parser`` to themselves, so that of a wrong option
    the verb's own usage is shown."""

    def parse_words(self, words: Sequence[str]) -> argparse.Namespace:
        """As ``parse_args``."""
        arguments, unknown = self.parse_known_args(words)
        if unknown:
            parser: argparse.ArgumentParser = getattr(arguments, "parser", self)
            parser.error(f"{unknown_words(parser, unknown)}; {parser.prog} --help says more")
        return arguments

    def error(self, message: str) -> NoReturn:
        super().error(told(message))


def unknown_words(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """``--fro is no option; did you mean --force?``"""
    option = unknown[0].partition("=")[0]
    if not option.startswith("-"):
        return f"unrecognized arguments: {ascii(' '.join(unknown))[1:-1][: 10 * MOST_GIVEN]}"
    given = ascii(option)[1:-1][:MOST_GIVEN]
    known = _options(parser)
    likely = [each for each in _MEANT.get(option.casefold(), ()) if each in known]
    likely = likely or difflib.get_close_matches(option.casefold(), known, n=1, cutoff=ALIKE)
    hint = f"; did you mean {likely[0]}?" if likely else ""
    return f"{given} is no option here{hint}"


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [word for word in re.findall(r"(?<!-)--[a-z-]+", parser.format_usage()) if word != "--help"]


def told(message: str) -> str:
    """argparse's message; of a wrong choice with the likely ones alone, where there are any."""
    found = _INVALID.search(message)
    if found is None:
        return message
    choices = [choice.strip().strip("'") for choice in found["choices"].split(",")]
    likely = difflib.get_close_matches(found["given"].casefold(), choices, n=3, cutoff=ALIKE)
    if not likely:
        return message
    before = message[: found.start()]
    given = ascii(found["given"])[:MOST_GIVEN]
    return f"{before}{given} is none; did you mean {' or '.join(likely)}?"
