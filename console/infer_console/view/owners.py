"""Letters and colours by which requests are told apart in a roster and a block map."""

import string
from collections.abc import Sequence
from typing import NamedTuple

from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.row import OWNER_ROLES, Role

LETTERS = string.ascii_uppercase + string.ascii_lowercase
#: Shown for owners beyond the letters.
OTHER = safe("+")


class OwnerMark(NamedTuple):
    letter: SafeText
    role: Role


_OTHER_MARK = OwnerMark(OTHER, "text")


class OwnerLetters:
    """A request keeps its letter for as long as it runs, whoever else comes and goes; letters are used again
    in turn, so that a letter just freed does not stand for somebody new at once."""

    def __init__(self) -> None:
        self._slots: dict[str, dict[str, int]] = {}
        self._next: dict[str, int] = {}

    def update(self, replica: str, owners: Sequence[str]) -> None:
        """Give letters to the requests that now hold blocks of ``replica`` and free those of the others."""
        slots = self._slots.setdefault(replica, {})
        present = set(owners)
        for gone in [owner for owner in slots if owner not in present]:
            del slots[gone]
        taken = set(slots.values())
        for owner in owners:
            if owner in slots or len(slots) >= len(LETTERS):
                continue
            slot = self._next.get(replica, 0)
            while slot in taken:
                slot = (slot + 1) % len(LETTERS)
            slots[owner] = slot
            taken.add(slot)
            self._next[replica] = (slot + 1) % len(LETTERS)

    def mark(self, replica: str, owner: str) -> OwnerMark:
        slot = self._slots.get(replica, {}).get(owner)
        if slot is None:
            return _OTHER_MARK
        return OwnerMark(safe(LETTERS[slot]), OWNER_ROLES[slot % len(OWNER_ROLES)])
