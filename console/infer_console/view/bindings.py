"""Which keys do what: the usual ones, with those of the operator's keymap in their place."""

from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.keys import ALL, KEYS, Key
from infer_console.view.look import Keymap, ScreenName


def keys_of(screen: ScreenName, keymap: Keymap | None = None) -> list[Key]:
    """With the keys of ``keymap`` in the place of the usual ones."""
    usual = [key for key in KEYS if screen in key.screens]
    if not keymap:
        return usual
    moved = {word for key in usual if key.name in keymap for word in key.shown.split()}
    return [_mapped(key, keymap, moved) for key in usual]


def _mapped(key: Key, keymap: Keymap, moved: set[str]) -> Key:
    """``moved`` are keys that mean something else now, or nothing: no other line tells of them."""
    keys = keymap.get(key.name)
    if keys is not None:
        shown = safe(" ".join(shown_key(each) for each in keys), 24)
        return key._replace(key=",".join(keys), shown=shown, help=key.help or key.label)
    kept = [word for word in key.shown.split() if word not in moved]
    if len(kept) == len(key.shown.split()):
        return key
    return key._replace(shown=safe(" ".join(kept) or shown_key(key.key.partition(",")[0])))


def acts(key: str, keymap: Keymap | None = None) -> bool:
    """Whether that key acts on some screen."""
    every = (each for screen in ALL for each in keys_of(screen, keymap))
    return any(each.kind == "act" and key in each.key.split(",") for each in every)


def where_it_acts(key: str, keymap: Keymap | None = None) -> SafeText:
    """``D drain does nothing here: it acts on 1 fleet, 2 replica``."""
    found = {
        screen: each
        for screen in ALL
        for each in keys_of(screen, keymap)
        if each.kind == "act" and key in each.key.split(",")
    }
    label = next((each.label for each in found.values()), "")
    places = ", ".join(f"{ALL.index(screen) + 1} {screen}" for screen in found)
    return safe(f"{shown_key(key)} {label} does nothing here: it acts on {places}")


def shown_key(key: str) -> str:
    """A key as the operator sees it."""
    return next((usual.shown for usual in KEYS if usual.key == key and " " not in usual.shown), key)
