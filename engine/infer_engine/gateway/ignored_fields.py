"""The header that says which fields of a request were taken no notice of."""

import re
from collections.abc import Sequence

HEADER = "x-infer-ignored"
MOST_NAMES = 16
#: Names are the client's: only what is one goes into a header.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    """Nothing where nothing was ignored; of many, or of such as are no names, how many more."""
    told = [name for name in names if _NAME.fullmatch(name)][:MOST_NAMES]
    more = len(names) - len(told)
    value = ", ".join([*told, *([f"+{more}"] if more else [])])
    return {HEADER: value} if value else {}
