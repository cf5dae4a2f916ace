"""Token ids out of somebody else's JSON."""

from typing import Any

#: An event with more tokens is none of such a server's.
MOST_TOKENS = 1 << 20


def token_ids(value: Any) -> list[int] | None:
    """None for what is no list of token ids."""
    if not isinstance(value, list) or len(value) > MOST_TOKENS:
        return None
    ids = [each for each in value if type(each) is int and 0 <= each < 2**31]
    return ids if len(ids) == len(value) else None
