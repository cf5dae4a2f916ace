"""A mistyped verb or choice: the error says what was probably meant, not only all that there is."""

import argparse
import difflib
import re
from typing import NoReturn

_INVALID = re.compile(r"invalid choice: '(?P<given>.*)' \(choose from (?P<choices>.*)\)", re.DOTALL)
#: How alike two words have to be, from 0 to 1.
ALIKE = 0.6
MOST_GIVEN = 40


class HelpfulParser(argparse.ArgumentParser):
    """Its subparsers are of this kind too."""

    def error(self, message: str) -> NoReturn:
        super().error(told(message))


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
