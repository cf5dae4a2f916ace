"""The second line of defence: nothing but printable text reaches the terminal, whoever forgot
:mod:`safe_text`.

It runs on the text of every segment just before escape sequences of our own are put around it. What it has to
change is a bug somewhere above, so it counts: the counter must stay 0.
"""

import re

#: Controls, bidi and zero-width characters, line separators, surrogates, tags: nothing a view may let
#: through.
_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
#: A base never carries more marks than this, even if something let them through.
_TOO_MANY_MARKS = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{4})[\u0300-\u036f]+"
)


class OutputFilter:
    """Replaces what may not be printed by ``�``. ``caught`` counts the pieces of text that needed it."""

    def __init__(self) -> None:
        self.caught = 0

    def clean(self, text: str) -> str:
        """``text`` itself where it is harmless, which is always."""
        if text.isascii() and text.isprintable():
            return text
        cleaned = _TOO_MANY_MARKS.sub("\\1", _FORBIDDEN.sub("\ufffd", text))
        if cleaned != text:
            self.caught += 1
        return cleaned
