"""Everything that the console draws, in ASCII: for terminals, fonts and locales that have nothing else.

Every character keeps its width: one cell stays one, a wide one becomes two. Shades that are told apart stay
told apart.
"""

from functools import lru_cache

from rich.cells import get_character_cell_size

#: Characters of our own views, each by one of ASCII.
TABLE: dict[str, str] = {
    # rules and boxes
    **dict.fromkeys("─━┄┈╌═╴╶╼╾", "-"),
    **dict.fromkeys("│┃┆┊╎╏║▏▕▎▍", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛┣┫┳┻╋╞╡╪", "+"),
    "╱": "/",
    "╲": "\\",
    "╳": "x",
    # shades and blocks
    "█": "@",  # not "#": that is a used block beside the selected ones
    "▓": "%",
    "▒": ":",
    "░": ",",
    "▉": "#",
    "▊": "#",
    "▋": "=",
    "▌": "=",
    "▐": "=",
    "▀": '"',
    "▄": "_",
    "‖": "|",
    "■": "#",
    "□": "o",
    "▪": "*",
    "▫": "o",
    "·": ".",
    "•": "*",
    "●": "*",
    "○": "o",
    "◌": "o",
    "◐": "(",
    "◑": ")",
    "◆": "*",
    "◇": "o",
    # heights of a sparkline, eight told apart
    "▁": "_",
    "▂": ".",
    "▃": "-",
    "▅": "+",
    "▆": "*",
    "▇": "%",
    # signs
    "▲": "!",
    "△": "^",
    "▼": "v",
    "▽": "v",
    "▾": "v",
    "▿": "v",
    "▴": "^",
    "▸": ">",
    "▶": ">",
    "▹": ">",
    "►": ">",
    "◂": "<",
    "◀": "<",
    "◄": "<",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
    "↳": "\\",
    "↔": "-",
    "⇄": "-",
    "⇅": "|",
    "›": ">",
    "‹": "<",
    "»": ">",
    "«": "<",
    "✓": "+",
    "✔": "+",
    "✗": "x",
    "✘": "x",
    "×": "x",
    "–": "-",
    "—": "-",
    "…": "~",
    "≤": "<",
    "≥": ">",
    "≈": "~",
    "±": "~",
    "∞": "8",
    "µ": "u",
    "μ": "u",
    "°": "o",
    "Δ": "d",
    "Σ": "S",
    "÷": "/",
    "²": "2",
    "³": "3",
    "½": "h",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "␣": "_",
    "⏸": "=",
    "⌀": "o",
    "\u00a0": " ",
}
#: What the rest of a block of drawing characters becomes, by its first and last.
BLOCKS = ((0x2190, 0x21FF, ">"), (0x2500, 0x257F, "+"), (0x2580, 0x259F, "#"), (0x25A0, 0x25FF, "*"))
#: What any other character becomes.
OTHER = "?"


@lru_cache(8192)
def _shown(character: str) -> str:
    if character.isascii():
        return character
    known = TABLE.get(character)
    if known is not None:
        return known
    for first, last, shown in BLOCKS:
        if first <= ord(character) <= last:
            return shown * get_character_cell_size(character)
    if 0x2400 <= ord(character) <= 0x2421:
        return "^"  # control pictures
    return OTHER * get_character_cell_size(character)


def plain_ascii(text: str) -> str:
    """``text`` as wide as before, in ASCII alone; marks without a width go."""
    return text if text.isascii() else "".join(map(_shown, text))
