"""Letters and colours by which requests are told apart in a roster and a block map."""

import string
from collections.abc import Sequence
from typing import NamedTuple

from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.row import OWNER_ROLES, Role

LETTERS = string.ascii_uppercase + string.ascii_lowercase
_CAPITALS = len(string.ascii_uppercase)
#: Shown for owners beyond the letters.
OTHER = safe("+")


def _twin(slot: int) -> int:
    """The same letter in the other case."""
    return slot + _CAPITALS if slot < _CAPITALS else slot - _CAPITALS


class OwnerMark(NamedTuple):
    letter: SafeText
    role: Role


_OTHER_MARK = OwnerMark(OTHER, "text")


class OwnerLetters:
    """A request keeps its letter for as long as it is seen, whoever else comes and goes; letters are used
    again in turn, so that a letter just freed does not stand for somebody new at once. Small letters come
    when the capitals are gone, and last those beside whose capital, or beside which the small one, is in
    use."""

    def __init__(self) -> None:
        self._slots: dict[str, dict[str, int]] = {}
        self._next: dict[str, int] = {}

    def update(self, replica: str, owners: Sequence[str], seen: Sequence[str] = ()) -> None:
        """Give letters to the requests that now hold blocks of ``replica``; free those of requests that are
        neither there nor among the ``seen``."""
        slots = self._slots.setdefault(replica, {})
        present = {*owners, *seen}
        for gone in [owner for owner in slots if owner not in present]:
            del slots[gone]
        taken = set(slots.values())
        for owner in owners:
            if owner in slots or len(slots) >= len(LETTERS):
                continue
            start = self._next.get(replica, 0)
            turn = [(start + step) % _CAPITALS for step in range(_CAPITALS)]
            free = [slot for slot in (*turn, *(slot + _CAPITALS for slot in turn)) if slot not in taken]
            slot = min(free, key=lambda slot: _twin(slot) in taken)
            slots[owner] = slot
            taken.add(slot)
            self._next[replica] = (slot + 1) % _CAPITALS

    def mark(self, replica: str, owner: str) -> OwnerMark:
        slot = self._slots.get(replica, {}).get(owner)
        if slot is None:
            return _OTHER_MARK
        return OwnerMark(safe(LETTERS[slot]), OWNER_ROLES[slot % len(OWNER_ROLES)])
