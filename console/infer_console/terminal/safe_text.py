"""The one boundary between text that others wrote and the operator's terminal.

Prompts, tokens, tenant and model names, request ids, error messages: whoever uses the model can put escape
sequences, bidi overrides, or a million combining marks into them, and neither Rich nor Textual takes them
out. Everything that is not a constant of ours becomes :class:`SafeText` here before a view may use it.

The policy looks at one code point at a time and keeps no parser state, so no way of splitting the input can
smuggle a sequence past it. Nothing is dropped silently: what may not be printed gets a visible form.

=====================================  =========================
C0 controls, DEL                       ``␛`` (control pictures)
C1 controls                            ``\\x9b``
bidi, zero-width, fillers, variation   ``<202E>``
surrogates, private, unassigned        ``�``
characters whose width is disputed     ``<1F1E9>``
=====================================  =========================

Aligned columns (:func:`safe`) are stricter than panes (:func:`safe_clusters`): there every character is
exactly one cell, so wide, combining and right-to-left characters are shown escaped and ``len()`` is the
width in cells.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple, Self

from rich.cells import get_character_cell_size

#: Cells of one line of untrusted text, at most.
MAX_CELLS = 4096
#: Combining marks drawn on one base character, at most.
MAX_MARKS = 4
#: Longest identifier shown.
MAX_IDENTIFIER = 64

ELLIPSIS = "…"
MORE_MARKS = "<+marks>"
_DOTTED_CIRCLE = "\u25cc"
_REPLACEMENT = "\ufffd"

#: Characters that look like nothing, or change the width of their neighbours, whatever their category says.
_ALWAYS_ESCAPED = frozenset(
    [
        *(0x2800, 0x3164, 0xFFA0, 0x115F, 0x1160, 0x20E3, 0x034F, 0x17B4, 0x17B5),
        *range(0xFE00, 0xFE10),  # variation selectors
        *range(0xE0100, 0xE01F0),
        *range(0x180B, 0x1810),  # Mongolian variation selectors
        *range(0x1F1E6, 0x1F200),  # regional indicators: terminals disagree about pairs
        *range(0x1F3FB, 0x1F400),  # skin tones
    ]
)
#: A character of an identifier, or an IPv6 address in its brackets.
_IDENTIFIER_PIECE = re.compile(r"[A-Za-z0-9._:@/-]|\[[0-9A-Fa-f:.]{2,45}\]", re.ASCII)


class SafeText(str):
    """Text that may be written to a terminal. Made by the functions of this module only."""

    __slots__ = ()

    def __new__(cls, *_: object) -> Self:
        raise TypeError("SafeText is made by safe(), safe_identifier() and safe_clusters()")


class Cluster(NamedTuple):
    """What is drawn as one unit: a base character with its marks, or the visible form of one that may not
    be."""

    text: SafeText
    cells: int
    escaped: bool


class _Shape(NamedTuple):
    """How one code point is shown. ``cells`` is 0 for a combining mark."""

    text: str
    cells: int
    escaped: bool


def _trust(text: str) -> SafeText:
    return str.__new__(SafeText, text)


def _visible(code: int) -> _Shape:
    text = f"<{code:04X}>"
    return _Shape(text, len(text), True)


def _classify(character: str) -> _Shape:
    """The pane policy for one code point: its own text where it is harmless, else a visible form."""
    code = ord(character)
    if 0x20 <= code < 0x7F:
        return _Shape(character, 1, False)
    if code < 0x20:
        return _Shape(chr(0x2400 + code), 1, True)
    if code == 0x7F:
        return _Shape("\u2421", 1, True)
    if code < 0xA0:
        return _Shape(f"\\x{code:02x}", 4, True)
    if 0xE0000 <= code <= 0xE007F:
        return _Shape("<tag>", 5, True)
    category = unicodedata.category(character)
    if category in ("Cs", "Co", "Cn"):
        return _Shape(_REPLACEMENT, 1, True)
    if category in ("Cf", "Zl", "Zp") or code in _ALWAYS_ESCAPED:
        return _visible(code)
    wide = unicodedata.east_asian_width(character) in "WF"
    expected = 0 if category in ("Mn", "Me") else 2 if wide else 1
    # Two sources must agree on the width; where they do not, terminals do not either, and rows would shift.
    if get_character_cell_size(character) != expected:
        return _visible(code)
    return _Shape(character, expected, False)


#: Few different characters come up; bounded, because an attacker chooses which.
_shapes: dict[str, _Shape] = {}
_MAX_SHAPES = 8192


def _shape(character: str) -> _Shape:
    shape = _shapes.get(character)
    if shape is None:
        if len(_shapes) >= _MAX_SHAPES:
            _shapes.clear()
        shape = _shapes[character] = _classify(character)
    return shape


class _ColumnForms(dict[str, str]):
    """The aligned-column policy by code point: exactly one cell per character of the result. Bounded as the
    shapes are."""

    def __missing__(self, character: str) -> str:
        shape = _shape(character)
        form = shape.text
        alone = shape.cells == 1 and unicodedata.bidirectional(character) not in ("R", "AL", "AN")
        if not shape.escaped and not alone:
            form = _visible(ord(character)).text
        if len(self) >= _MAX_SHAPES:
            self.clear()
        self[character] = form
        return form


_column_forms = _ColumnForms()


def safe(text: str, limit: int = MAX_CELLS) -> SafeText:
    """One line of at most ``limit`` cells in which every character is one cell wide; cut with ``…``."""
    if len(text) <= limit and text.isascii() and text.isprintable():
        return _trust(text)
    # Every code point yields at least one character, so looking at ``limit + 1`` of them is enough.
    shown = "".join(map(_column_forms.__getitem__, text[: limit + 1]))
    return _trust(shown) if len(shown) <= limit else fit_text(_trust(shown), limit)


def fit_text(text: SafeText, cells: int) -> SafeText:
    """Column text cut to ``cells`` characters, the last one ``…`` where something is missing."""
    if len(text) <= cells:
        return text
    return _trust(text[: max(0, cells - 1)] + ELLIPSIS if cells > 0 else "")


def join_text(separator: str, parts: list[SafeText]) -> SafeText:
    """Safe parts joined by a constant of ours."""
    return _trust(separator.join(parts))


def safe_identifier(text: str) -> SafeText:
    """An id that a server or this console made, for places where an operator acts on it: ASCII letters,
    digits, ``. _ : -``, ``@ /`` as in ``task-7@gpu-a`` and ``gpu-a/e1``, and ``[::1]``; at most 64.

    Whatever else is in it is escaped, look-alikes from other scripts too, so no id can pass for another.
    """
    text, at, shown = text[: MAX_IDENTIFIER + 1], 0, list[str]()
    while at < len(text):
        piece = _IDENTIFIER_PIECE.match(text, at)
        shown.append(piece.group() if piece is not None else f"<{ord(text[at]):02X}>")
        at = piece.end() if piece is not None else at + 1
    return fit_text(_trust("".join(shown)), MAX_IDENTIFIER)


def safe_clusters(text: str) -> Iterator[Cluster]:
    """The drawable units of one line of free text, for panes; a newline in it becomes its control picture.

    A mark without a base gets a dotted circle, so text put together from pieces stays bounded too.
    """
    base, cells, marks = "", 0, 0
    for character in text:
        shape = _shape(character)
        if shape.cells == 0:
            if not base:
                base, cells, marks = _DOTTED_CIRCLE, 1, 0
            marks += 1
            if marks <= MAX_MARKS:
                base += character
            continue
        yield from _flush(base, cells, marks)
        base, cells, marks = "", 0, 0
        if shape.escaped:
            yield Cluster(_trust(shape.text), shape.cells, True)
        else:
            base, cells = shape.text, shape.cells
    yield from _flush(base, cells, marks)


def _flush(base: str, cells: int, marks: int) -> Iterator[Cluster]:
    if base:
        yield Cluster(_trust(base), cells, False)
    if marks > MAX_MARKS:
        yield Cluster(_trust(MORE_MARKS), len(MORE_MARKS), True)


def safe_multiline(text: str, max_lines: int = 2000) -> SafeText:
    """Several lines for plain output outside the screen (a crash report, a log tail): newlines and tabs kept
    apart, every line under :data:`MAX_CELLS`, the last ``max_lines`` of them."""
    lines = text.expandtabs(4).split("\n")
    return _trust("\n".join(safe(line) for line in lines[-max_lines:]))
