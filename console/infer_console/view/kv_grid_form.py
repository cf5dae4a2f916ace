"""The KV grid as it is being looked at: the sentence, how far decode was played. Pure state."""

from dataclasses import dataclass

from infer_engine.protocol import MOST_SENTENCE

from infer_console.planning.kv_grid import MOST_STEPS


@dataclass(slots=True)
class KvGridForm:
    open: bool = False
    #: All keys that can be typed go into the sentence.
    typing: bool = False
    text: str = ""
    #: Decode steps played.
    steps: int = 0
    #: Rows that are scrolled past.
    scrolled: int = 0

    @property
    def sentence(self) -> str | None:
        """What is to be cut into tokens; None while nobody looks, and where there are only blanks."""
        return self.text if self.open and self.text.strip() else None

    def show(self, text: str = "") -> None:
        """Open it, with another sentence where one is given."""
        self.open = True
        if text:
            self._set(text)
        self.typing = not self.text.strip()

    def close(self) -> None:
        self.open = self.typing = False

    def type(self, text: str) -> None:
        self._set(self.text + "".join(each for each in text if each.isprintable()))

    def erase(self) -> None:
        self._set(self.text[:-1])

    def finish(self) -> None:
        """Without a sentence there is nothing to look at."""
        self.typing = False
        if not self.text.strip():
            self.close()

    def step(self, by: int) -> None:
        self.steps = max(0, min(self.steps + by, MOST_STEPS))

    def _set(self, text: str) -> None:
        self.text = text[:MOST_SENTENCE]
        self.steps = self.scrolled = 0
