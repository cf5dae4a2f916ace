"""The keymap file: actions that are given other keys. One that is not right is not used at all: half a keymap
would do something else than either."""

import difflib
import re
from pathlib import Path
from typing import get_args

import platformdirs

from infer_console.toml_file import TomlError, parse_toml, read_text
from infer_console.view.bindings import keys_of
from infer_console.view.keys import KEYS
from infer_console.view.look import Keymap, ScreenName

MAX_FILE_BYTES = 100_000
MOST_KEYS = 8
_NAMED = frozenset(
    (
        *("enter", "escape", "tab", "space", "backspace", "delete", "insert", "home", "end"),
        *("pageup", "pagedown", "up", "down", "left", "right"),
        *(f"f{number}" for number in range(1, 25)),
    )
)
_MODIFIED = re.compile(r"((?:ctrl\+|alt\+|shift\+)*)(.+)")
#: These leave, whatever happens.
_RESERVED = ("ctrl+c", "ctrl+q")
#: Signs by the names that Textual has for them.
_SIGNS = {
    "!": "exclamation_mark", "/": "slash", ":": "colon", "?": "question_mark", "[": "left_square_bracket",
    "]": "right_square_bracket", "{": "left_curly_bracket", "}": "right_curly_bracket",
    "(": "left_parenthesis", ")": "right_parenthesis", ",": "comma", ".": "full_stop", "-": "minus",
    "+": "plus", "*": "asterisk", "=": "equals_sign", "<": "less_than_sign", ">": "greater_than_sign",
    ";": "semicolon", "'": "apostrophe", '"': "quotation_mark", "#": "number_sign", "$": "dollar_sign",
    "%": "percent_sign", "&": "ampersand", "@": "at", "\\": "backslash", "^": "circumflex_accent",
    "_": "underscore", "`": "grave_accent", "|": "vertical_line", "~": "tilde", " ": "space",
}  # fmt: skip


class KeymapError(ValueError):
    """``str()`` names the file, the line and what is wrong."""


def keymap_path() -> Path:
    return Path(platformdirs.user_config_dir("infer-console")) / "keys.toml"


def read_keymap(path: Path) -> Keymap:
    """By name of an action its keys, as Textual names them; nothing where there is no file."""
    try:
        text = read_text(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return {}
    except TomlError as error:
        raise KeymapError(f"{path.name}: {error}") from error
    try:
        return parse_keymap(text)
    except KeymapError as error:
        raise KeymapError(f"{path.name}{error}") from error


def parse_keymap(text: str) -> Keymap:
    """``name = ["key", …]`` in the table ``[keys]``. Raise KeymapError that begins with ``:LINE:``."""
    try:
        document = parse_toml(text)
    except TomlError as error:
        raise KeymapError(f": {error}") from error
    for table in document:
        if table != "keys":
            raise KeymapError(f":{_line(text, table)}: {table!r} was given, allowed is the table [keys]")
    raw = document.get("keys", {})
    if not isinstance(raw, dict):
        raise KeymapError(f":{_line(text, 'keys')}: keys is to be a table")
    names = sorted({key.name for key in KEYS})
    keymap: dict[str, tuple[str, ...]] = {}
    for name, keys in raw.items():
        at = f":{_line(text, name)}: "
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"allowed are {', '.join(names)}"
            raise KeymapError(f"{at}there is no action {name!r}; {hint}")
        given = [keys] if isinstance(keys, str) else keys
        if not isinstance(given, list) or not 0 < len(given) <= MOST_KEYS:
            raise KeymapError(f"{at}{name} is to be a list of 1 to {MOST_KEYS} keys")
        keymap[name] = tuple(_key(each, f"{at}{name}: ") for each in given)
    _check_doubles(text, keymap)
    return keymap


def _key(given: object, at: str) -> str:
    allowed = "allowed is a character, or a key like f5, ctrl+t, pagedown"
    if not isinstance(given, str) or len(given) > 40:
        raise KeymapError(f"{at}{given!r:.40} was given, {allowed}")
    if len(given) == 1 and given.isprintable():
        return _SIGNS.get(given, given)
    found = _MODIFIED.fullmatch(given)
    plain = found[2] if found is not None else ""
    one = len(plain) == 1 and plain.isascii() and plain.isalnum() and given != plain
    if given in _RESERVED or not (one or plain in _NAMED or given in _SIGNS.values()):
        raise KeymapError(f"{at}{given!r} was given, {allowed}{', not ctrl+c or ctrl+q'}")
    return given


def _check_doubles(text: str, keymap: Keymap) -> None:
    """A key means one thing on a screen."""
    for screen in get_args(ScreenName):
        seen: dict[str, str] = {}
        for key in keys_of(screen, keymap):
            for each in key.key.split(","):
                other = seen.setdefault(each, key.name)
                if other == key.name:
                    continue
                name = key.name if key.name in keymap else other
                rest = other if name == key.name else key.name
                where = f":{_line(text, name)}: "
                raise KeymapError(f"{where}{each} of {name} is a key of {rest} already (screen {screen})")


def _line(text: str, name: str) -> int:
    """Where a name is given a value; the first line where that cannot be told."""
    found = re.search(rf"^\s*[\[\"']*{re.escape(name)}[\"'\]]*\s*(?:=|$)", text, re.MULTILINE)
    return (
        1
        if found is None
        else text.count("\n", 0, found.start(0) + len(found[0]) - len(found[0].lstrip())) + 1
    )
