"""Esc and the key typed right after it, when both come in one read, as they do over a slow link.

Textual takes them for one key with alt, or for the second key alone. Whoever typed them meant Esc first, and
in a dialog it must not be lost before an Enter.
"""

from typing import cast

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.keys import Keys

#: Keys that Textual would give without the Esc before them.
_AFTER_ESCAPE = {"\r": Keys.Enter, "\t": Keys.Tab, "\x7f": Keys.Backspace}


def keep_escape() -> None:
    """Have Textual's parser give both keys. Its table is private; tests in a real terminal hold us to it."""
    table = cast("dict[str, tuple[Keys, ...]]", ANSI_SEQUENCES_KEYS)
    for character, key in _AFTER_ESCAPE.items():
        table["\x1b" + character] = (Keys.Escape, key)
    # Characters that a Mac types with its option key, and words to the left and right: of Esc and 2 nothing
    # would be left but a ™. Without them it is a key with alt.
    for sequence in [
        each for each in table if len(each) == 2 and each[0] == "\x1b" and each[1].isprintable()
    ]:
        del table[sequence]


def as_typed(event: events.Key) -> list[events.Key]:
    """A key with alt as the two keys that it was; a caret that the parser put for an Esc as that Esc."""
    escape = events.Key("escape", "\x1b")
    if event.key == "circumflex_accent":
        return [escape]
    if event.key.startswith("alt+"):
        return [escape, events.Key(event.key.removeprefix("alt+"), event.character)]
    return [event]
