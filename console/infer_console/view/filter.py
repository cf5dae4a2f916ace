"""The filter of the lists: a regular expression, ``!`` before it shows what does not match.

An expression that is not one, or that could take long, is matched literally, and says so.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

#: Characters of a text that are looked at.
MOST_CHARACTERS = 96
#: Repetitions that Python's matcher tries against each other: more of them can take minutes.
MOST_REPEATS = 3
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_REPEAT = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})")


class Filter(NamedTuple):
    search: Callable[[str], object]
    inverse: bool = False
    #: Why the text is taken literally; empty where it is an expression.
    trouble: str = ""

    def shows(self, *texts: str | None) -> bool:
        """Whether an item with these texts is shown."""
        found = any(self.search(text[:MOST_CHARACTERS].casefold()) for text in texts if text)
        return found != self.inverse


@lru_cache(maxsize=32)
def compiled(text: str) -> Filter:
    """The filter that ``text`` is; an empty one shows everything, ``!`` alone too."""
    inverse = text.startswith("!") and len(text) > 1
    wanted = text.removeprefix("!").casefold()
    trouble = "" if text.isalnum() else _trouble(wanted)
    if trouble:
        return Filter(lambda shown: wanted in shown, inverse, trouble)
    return Filter(re.compile(wanted).search, inverse)


def _trouble(expression: str) -> str:
    if _REPEATED_GROUP.search(expression) or len(_REPEAT.findall(expression)) > MOST_REPEATS:
        return "too costly an expression: matched literally"
    try:
        re.compile(expression)
    except re.error as error:
        return f"not an expression ({error.msg}): matched literally"
    return ""
