"""The command line while it is typed: editing, history, and completion by tab."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from infer_console.commands.complete import candidates, entry_of, with_last
from infer_console.commands.known import Known
from infer_console.commands.parse import MAX_LINE


@dataclass(slots=True)
class CommandLine:
    #: What was entered before, the oldest first.
    history: Sequence[str] = ()
    text: str = ""
    #: Where the next character goes.
    at: int = 0
    #: Why it was not taken; until it is changed.
    error: str = ""
    #: What tab goes through, and where it is in it.
    offered: list[str] = field(default_factory=list[str])
    turn: int = -1
    #: Entries back in the history; 0 is the line that was being typed, which is kept.
    _back: int = 0
    _draft: str = ""

    def set(self, text: str) -> None:
        self.text, self.at, self.error = text[:MAX_LINE], min(len(text), MAX_LINE), ""
        self.offered, self.turn = [], -1

    def type(self, character: str) -> None:
        if len(self.text) < MAX_LINE:
            self._replace(self.text[: self.at] + character + self.text[self.at :], self.at + len(character))

    def backspace(self) -> None:
        self._replace(self.text[: max(0, self.at - 1)] + self.text[self.at :], max(0, self.at - 1))

    def delete(self) -> None:
        self._replace(self.text[: self.at] + self.text[self.at + 1 :], self.at)

    def delete_word(self) -> None:
        kept = self.text[: self.at].rstrip(" ")
        kept = kept[: kept.rfind(" ") + 1]
        self._replace(kept + self.text[self.at :], len(kept))

    def move(self, by: int) -> None:
        self.at = max(0, min(self.at + by, len(self.text)))

    def older(self, by: int = 1) -> None:
        """Up the history, or down again; only entries that begin like what was typed."""
        if not self._back:
            self._draft = self.text
        fitting = [each for each in self.history if each.startswith(self._draft)]
        back = max(0, min(self._back + by, len(fitting)))
        self.set(fitting[-back] if back else self._draft)
        self._back = back

    def complete(self, known: Known, by: int = 1) -> None:
        """Put in what all candidates begin with, then go through them."""
        if self.turn >= 0 and len(self.offered) > 1:
            self.turn = (self.turn + by) % len(self.offered)
            self._put(self.offered[self.turn])
            return
        offered = candidates(self.text, known)
        if not offered:
            return
        last = self.text.rpartition(" ")[2]
        common = _common(offered)
        if len(offered) == 1:
            word = offered[0]
            self._put(word if word.endswith("=") else f"{word} ")
        elif len(common) > len(last):
            self._put(common)
        else:
            self.offered, self.turn = offered, 0 if by > 0 else len(offered) - 1
            self._put(self.offered[self.turn])

    def hint(self, known: Known) -> tuple[str, list[str], str]:
        """Usage of the command that is being typed, what its next word may be, and the one of those that tab
        stands on."""
        name, blank, _ = self.text.partition(" ")
        entry = entry_of(name) if blank else None
        usage = f"{entry.usage}: {entry.help}" if entry is not None else ""
        if self.turn >= 0:
            return usage, self.offered, self.offered[self.turn]
        return usage, candidates(self.text, known), ""

    def _put(self, word: str) -> None:
        self.text = with_last(self.text, word)[:MAX_LINE]
        self.at, self.error = len(self.text), ""

    def _replace(self, text: str, at: int) -> None:
        self.text, self.at, self.error = text, at, ""
        self.offered, self.turn, self._back = [], -1, 0


def _common(words: Sequence[str]) -> str:
    """What all begin with."""
    first, last = min(words), max(words)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[: len(min(first, last, key=len)) if same is None else same]
