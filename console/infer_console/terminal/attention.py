"""The bell and the window's title, for an operator who looks at another window."""

from infer_console.terminal.safe_text import SafeText, safe

BELL = "\x07"
#: The title as it was is put on the terminal's stack, and taken from it when leaving.
KEEP_TITLE, PUT_TITLE_BACK = "\x1b[22;2t", "\x1b[23;2t"
MAX_TITLE = 80
#: An alarm that comes and goes does not ring all the time.
QUIET_S = 10.0


def title_sequence(text: str) -> str:
    """A window title of ASCII alone: terminals differ in what they make of anything else there."""
    shown: SafeText = safe(text, MAX_TITLE)
    plain = "".join(character if 0x20 <= ord(character) < 0x7F else "?" for character in shown)
    return f"\x1b]2;{plain}\x1b\\"


class Attention:
    """Says when something critical is new. ``bell`` and ``title``: what the operator wants of it."""

    def __init__(self, *, bell: bool = True, title: bool = True) -> None:
        self._bell, self._title = bell, title
        self._known: frozenset[str] = frozenset()
        self._titled = False
        self._rung_s: float | None = None

    def critical(self, alarms: dict[str, str], fleet: str, now_s: float) -> str:
        """The critical alarms there are now, text by what tells them apart; returns what to write for it,
        mostly nothing. ``now_s`` is any clock that does not go back."""
        now = frozenset(alarms)
        new = [alarms[each] for each in alarms if each not in self._known]
        changed, self._known = now != self._known, now
        text = BELL if new and self._bell and self._may_ring(now_s) else ""
        if not changed or not self._title:
            return text
        if not self._titled:
            self._titled = True
            text += KEEP_TITLE
        first = new[0] if new else next(iter(alarms.values()), "")
        count = f"{len(alarms)} critical" if alarms else "no critical alarm"
        return text + title_sequence(f"{count} - {fleet}{': ' + first if first else ''}")

    def _may_ring(self, now_s: float) -> bool:
        if self._rung_s is not None and now_s - self._rung_s < QUIET_S:
            return False
        self._rung_s = now_s
        return True

    @property
    def titled(self) -> bool:
        """Whether the title is ours."""
        return self._titled

    def leave(self) -> str:
        """What puts the title back."""
        if not self._titled:
            return ""
        self._titled = False
        return PUT_TITLE_BACK
