"""What is pasted is text, whatever is in it.

A terminal puts marks around a paste, and not every one takes control characters out of what is between them.
Textual reads an Esc there, and what follows it, as keys: a text that somebody else wrote would act.
"""

START, END = "\x1b[200~", "\x1b[201~"
#: Of one paste; what is beyond is left out.
MOST_CHARACTERS = 64 * 1024
#: These leave, whatever happens: typed alone they end a paste whose end was lost.
_LEAVING = ("\x03", "\x11")
_ESCAPE, _SHOWN = "\x1b", "␛"


class PasteGuard:
    """Input comes in pieces, cut anywhere."""

    def __init__(self) -> None:
        self._inside = False
        #: The end of what came last, where it may be the beginning of a mark. Within a paste it is held back.
        self._begun = ""
        self._room = 0

    def through(self, data: str) -> str:
        """What of it is to be read."""
        if self._inside and data in _LEAVING:
            self._inside, self._begun = False, ""
            return END + data
        passed: list[str] = []
        while data:
            mark = END if self._inside else START
            seen = len(self._begun)
            whole = self._begun + data
            at = whole.find(mark)
            self._begun = _beginning(whole, mark) if at < 0 else ""
            if self._inside:
                passed.append(self._text(whole[: at if at >= 0 else len(whole) - len(self._begun)]))
                passed.append(mark if at >= 0 else "")
            else:
                passed.append(whole[seen : at + len(mark) if at >= 0 else None])
            if at < 0:
                break
            data = whole[at + len(mark) :]
            self._inside, self._room = not self._inside, MOST_CHARACTERS
        return "".join(passed)

    def _text(self, text: str) -> str:
        text = text[: self._room].replace(_ESCAPE, _SHOWN)
        self._room -= len(text)
        return text


def taken(pasted: str, most: int) -> tuple[str, str]:
    """What a field takes of what was pasted, its first line with words on it and at most so many characters;
    and what is said of the rest, nothing where there is none."""
    lines = [line.strip() for line in pasted.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    if len(first) > most:
        return first[:most], f"of what was pasted the first {most:,} characters are taken"
    return first, "of what was pasted the first line is taken" if len(lines) > 1 else ""


def _beginning(text: str, mark: str) -> str:
    """The longest end of the text that a mark begins with."""
    longest = min(len(text), len(mark) - 1)
    return next((mark[:length] for length in range(longest, 0, -1) if text.endswith(mark[:length])), "")
