"""Whether a history of reads and conditional writes of one value could have happened one after another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """``kind`` read: ``value`` is what was seen. write: done under the version of ``seen`` (``ok``), or
    refused."""

    kind: str
    began: int
    ended: int
    value: Any
    seen: Any = None
    ok: bool = True


def is_linearisable(calls: Sequence[Call], first: Any) -> bool:
    """Search for an order that keeps to real time (who ended before another began comes first) and in which
    every read saw the last write, every write that was done found what it was for, and every refused one did
    not."""
    dead: set[tuple[frozenset[int], Any]] = set()

    def search(left: frozenset[int], value: Any) -> bool:
        if not left:
            return True
        if (left, value) in dead:
            return False
        horizon = min(calls[each].ended for each in left)
        for each in sorted(left):
            call = calls[each]
            if call.began > horizon:
                continue
            if call.kind == "read":
                fits, after = call.value == value, value
            else:
                fits, after = (call.seen == value) == call.ok, call.value if call.ok else value
            if fits and search(left - {each}, after):
                return True
        dead.add((left, value))
        return False

    return search(frozenset(range(len(calls))), first)
