"""Stop strings, found across token boundaries, with nothing of them ever let out."""


class StopText:
    """Lets text through until one of ``stops`` is complete. What may yet become a stop string is held back.

    Works character by character, so where tokens are cut never changes the result: the stop string that
    completes first wins, the longer one where two complete at once. With ``include`` the stop string itself
    comes out as well.
    """

    def __init__(self, stops: tuple[str, ...], *, include: bool = False) -> None:
        self._include = include
        self._matchers = [_Matcher(stop) for stop in stops]
        self._held = ""
        #: The stop string that was found; after that nothing more comes out.
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Take ``text``; return what can be let out now."""
        if self.matched is not None:
            return ""
        if not self._matchers:
            return text
        pending = self._held + text
        for position in range(len(self._held), len(pending)):
            complete = [each.stop for each in self._matchers if each.step(pending[position])]
            if complete:
                self.matched = max(complete, key=len)
                self._held = ""
                return pending[: position + 1 - (0 if self._include else len(self.matched))]
        held_chars = max(each.length for each in self._matchers)
        released = len(pending) - held_chars
        self._held = pending[released:]
        return pending[:released]

    def flush(self) -> str:
        """No more text comes: let out what was held back."""
        held, self._held = self._held, ""
        return held


class _Matcher:
    """Knuth, Morris and Pratt: ``length`` is how much of ``stop`` the text so far ends with."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.length = 0
        #: For each prefix of ``stop``, the length of its longest proper border.
        self._borders = [0] * len(stop)
        for position in range(1, len(stop)):
            length = self._borders[position - 1]
            while length and stop[length] != stop[position]:
                length = self._borders[length - 1]
            self._borders[position] = length + (stop[length] == stop[position])

    def step(self, char: str) -> bool:
        """Take one character; True when it completes ``stop``. Not called again after that."""
        while self.length and self.stop[self.length] != char:
            self.length = self._borders[self.length - 1]
        if self.stop[self.length] == char:
            self.length += 1
        return self.length == len(self.stop)
