"""An answer of the terminal that came in pieces, told apart from keys.

A slow link can tear ``ESC [ 12 ; 40 R`` apart. The parser then gives up waiting after the ESC and takes it
for the Esc key and the rest for typed characters, which would act. While an answer is awaited, a lone Esc is
therefore held for a moment, and what continues an answer is swallowed with it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

#: How long a lone Esc is held while an answer is awaited.
HOLD_S = 0.25
#: ``[``, two numbers, ``;`` and ``R``: no answer is longer.
_LONGEST = 12
#: How the parser shows the ESC of a sequence that it gave up.
_ESCAPES = ("escape", "circumflex_accent")


class Typed(NamedTuple):
    """A key by its name, and the character that it types."""

    key: str
    character: str | None


@dataclass(slots=True)
class TornAnswer:
    """``feed`` takes keys as they come, and gives back those to act upon."""

    _held: list[Typed] = field(default_factory=list)

    @property
    def holding(self) -> bool:
        return bool(self._held)

    def feed(self, typed: Typed, awaited: bool) -> tuple[list[Typed], bool]:
        """The keys to act upon now, and whether an answer was completed."""
        if not self._held:
            if awaited and typed.key in _ESCAPES:
                self._held.append(typed)
                return [], False
            return [typed], False
        so_far = "".join(each.character or "" for each in self._held[1:])
        if _continues(so_far, typed.character or ""):
            self._held.append(typed)
            if typed.character == "R":
                self._held.clear()
                return [], True
            return [], False
        return [*self.release(), typed], False

    def release(self) -> list[Typed]:
        """It was no answer: the keys that were held."""
        keys = self._held.copy()
        self._held.clear()
        return keys


def _continues(so_far: str, character: str) -> bool:
    """Whether ``so_far`` (without the ESC) and one character more can be the beginning of an answer, or
    all of it."""
    text = so_far + character
    if len(text) > _LONGEST or len(character) != 1 or not text.startswith("["):
        return False
    rows, separator, columns = text[1:].partition(";")
    if not separator:
        return rows == "" or (rows.isascii() and rows.isdecimal())
    columns, ended = (columns[:-1], True) if columns.endswith("R") else (columns, False)
    if not (rows.isascii() and rows.isdecimal()):
        return False
    return (columns == "" and not ended) or (columns.isascii() and columns.isdecimal())
