from pathlib import Path

import pytest
from infer_console.habits.keymap import KeymapError, parse_keymap, read_keymap
from infer_console.view.bindings import keys_of
from infer_console.view.help import help_rows
from infer_console.view.key_bar import key_bar
from infer_console.view.keys import KEYS
from infer_console.view.row import plain

GOOD = """
# mine
[keys]
pause = ["f5", "P"]
preempt = ["M"]
filter = "ctrl+f"
up = ["u"]
"""


def test_keys_are_taken_as_they_are_named() -> None:
    assert parse_keymap(GOOD) == {
        "pause": ("f5", "P"),
        "preempt": ("M",),
        "filter": ("ctrl+f",),
        "up": ("u",),
    }
    assert parse_keymap('[keys]\nfilter = "!"\nnext-alarm = "/"') == {
        "filter": ("exclamation_mark",),
        "next-alarm": ("slash",),
    }


def test_bar_and_help_show_the_changed_keys() -> None:
    keymap = parse_keymap(GOOD)
    bar = plain(key_bar("fleet", 200, keymap=keymap))
    assert "f5 P pause" in bar
    assert "ctrl+f filter" in bar
    shown = "\n".join(plain(row) for row in help_rows("fleet", 120, 60, keymap=keymap))
    assert "f5 P       freeze what is shown" in shown
    assert "u          up" in shown
    down = next(key for key in keys_of("fleet", keymap) if key.action == "down")
    assert down.shown == "j"


def test_without_a_keymap_nothing_changes() -> None:
    assert keys_of("fleet") == [key for key in KEYS if "fleet" in key.screens]
    assert all(key.name and "(" not in key.name for key in KEYS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[keys]\n\ndrian = ['x']", (":3:", "no action 'drian'", "did you mean drain?")),
        ("[keys]\npause = ['j']", (":2:", "j of pause is a key of down already")),
        ("[keys]\npause = ['z']\ntheme = ['z']", (":3:", "z of theme is a key of pause already")),
        ("[keys]\npause = ['ctrl+c']", (":2:", "'ctrl+c' was given", "not ctrl+c")),
        ("[keys]\npause = ['nokey']", (":2:", "'nokey' was given", "a key like f5")),
        ("[keys]\npause = [3]", (":2:", "3 was given")),
        ("[keys]\npause = []", (":2:", "a list of 1 to 8 keys")),
        ("[key]\npause = ['x']", (":1:", "'key' was given, allowed is the table [keys]")),
        ("keys = 3", (":1:", "table")),
        ("[keys\n", ("line 1",)),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(KeymapError) as error:
        parse_keymap(text)
    for word in words:
        assert word in str(error.value)


def test_files(tmp_path: Path) -> None:
    assert read_keymap(tmp_path / "keys.toml") == {}
    (tmp_path / "keys.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(KeymapError, match=r"keys\.toml"):
        read_keymap(tmp_path / "keys.toml")
