"""Every key once: what it does, where, and how the key bar and the help page call it. Small letters look,
capitals act."""

import re
from typing import Literal, LiteralString, NamedTuple

from infer_console.terminal.safe_text import safe
from infer_console.view.look import Keymap, ScreenName
from infer_console.view.row import Line, Row, Shown, Tone

ALL: tuple[ScreenName, ...] = (
    "fleet",
    "replica",
    "requests",
    "streams",
    "events",
    "traffic",
    "planner",
    "doctor",
)
LISTS: tuple[ScreenName, ...] = ("fleet", "replica")
#: Those with a request under the cursor.
REQUESTS: tuple[ScreenName, ...] = ("replica", "requests", "streams")


class Key(NamedTuple):
    #: As Textual names it.
    key: str
    #: As the operator sees it.
    shown: Shown
    #: The name of the action, ``action_<name>`` on the screen.
    action: str
    label: LiteralString
    #: Empty where another key's line tells of this one too.
    help: LiteralString
    kind: Literal["look", "act"] = "look"
    screens: tuple[ScreenName, ...] = ALL
    #: In the key bar; the lower, the sooner it is left out.
    bar: int = 0

    @property
    def name(self) -> str:
        """As a keymap file calls it: ``drain``, ``step-back``."""
        return _NAMES.get(self.action) or re.sub(r"act\('(.*)'\)", r"\1", self.action).replace("_", "-")


_NAMES = {
    "step(-5)": "step-back",
    "step(5)": "step-forward",
    "step(-60)": "minute-back",
    "step(60)": "minute-forward",
    "to_mark(-1)": "mark-before",
    "to_mark(1)": "mark-after",
    "decode(1)": "decode",
    "decode(-1)": "decode-undo",
    "quit": "leave",
}


KEYS: tuple[Key, ...] = (
    Key(
        "enter",
        "enter",
        "into",
        "open",
        "open the replica under the cursor; on a request: its tokens",
        "look",
        LISTS,
        9,
    ),
    Key(
        "enter",
        "enter",
        "into",
        "open",
        "on a finding: the plan of what it proposes; on a record of the audit: that moment",
        "look",
        ("doctor",),
        9,
    ),
    Key("escape", "esc", "back", "back", "clear the filter", "look", ("fleet",)),
    Key("escape", "esc", "back", "back", "clear the filter, else go back", "look", ALL[1:], 8),
    Key(
        "tab",
        "tab",
        "next_pane",
        "pane",
        "next pane; with shift the one before",
        "look",
        (*LISTS, "doctor"),
        7,
    ),
    Key("shift+tab", "shift+tab", "previous_pane", "pane", "", "look", (*LISTS, "doctor")),
    Key("j,down", "j k", "down", "row", "one row down, up", "look", ALL),
    Key("k,up", "k", "up", "up", "", "look", ALL),
    Key("g,home", "g G", "top", "ends", "first, last row", "look", ALL),
    Key("G", "G", "bottom", "bottom", "", "look", ALL),
    Key("end", "end", "end", "now", "in the past: back to now; else the last row", "look", ALL),
    Key("pagedown", "pgdn pgup", "page_down", "page", "a page down, up", "look", ALL),
    Key("pageup", "pgup", "page_up", "page", "", "look", ALL),
    Key("exclamation_mark", "!", "next_alarm", "alarm", "go to the next alarm's replica", "look", ALL, 5),
    Key(
        "slash",
        "/",
        "filter",
        "filter",
        "show only rows that match an expression; !x: those that do not",
        "look",
        (*LISTS, "doctor"),
        4,
    ),
    Key("s", "s", "sort", "sort", "next sort order", "look", LISTS, 3),
    Key(
        "v",
        "v",
        "lens",
        "lens",
        "block map by owner, age, sharing, eviction, tier, state",
        "look",
        ("replica",),
        8,
    ),
    Key("space", "space", "mark", "mark", "pick a request for the Streams screen", "look", ("replica",), 3),
    Key(
        "p",
        "p",
        "pause",
        "pause",
        "freeze what is shown, or back to now; collecting goes on, action keys are off",
        "look",
        ALL,
        3,
    ),
    Key(
        "left_square_bracket",
        "[ ] { }",
        "step(-5)",
        "time",
        "five seconds or a minute earlier, later: all screens show that moment",
        "look",
        ALL,
    ),
    Key("right_square_bracket", "]", "step(5)", "later", "", "look", ALL),
    Key("left_curly_bracket", "{", "step(-60)", "earlier", "", "look", ALL),
    Key("right_curly_bracket", "}", "step(60)", "later", "", "look", ALL),
    Key(
        "left_parenthesis",
        "( )",
        "to_mark(-1)",
        "marks",
        "to the mark before, after: alarms, actions, settings, own",
        "look",
        ALL,
    ),
    Key("right_parenthesis", ")", "to_mark(1)", "mark", "", "look", ALL),
    Key("m", "m", "mark_time", "mark", "mark the moment that is shown", "look", ALL),
    Key(
        "e",
        "e",
        "export",
        "export",
        "write a recording, from the last own mark, or of the last ten minutes, without names",
        "look",
        ALL,
    ),
    Key("1", "1", "fleet", "fleet", "all replicas", "look", ALL, 2),
    Key("2", "2", "replica", "replica", "one replica: batch, queue, KV blocks", "look", ALL, 2),
    Key("3", "3", "requests", "requests", "every request of the fleet, and why it waits", "look", ALL, 2),
    Key("4", "4", "streams", "streams", "tokens as they are generated", "look", ALL, 2),
    Key("5", "5", "events", "events", "what happened, and operations under way", "look", ALL, 2),
    Key("6", "6", "traffic", "traffic", "test traffic and what it does", "look", ALL, 1),
    Key("7", "7", "planner", "planner", "the arithmetic of memory and speed", "look", ALL, 1),
    Key("8", "8", "doctor", "doctor", "what is wrong, and who did what", "look", ALL, 1),
    Key(
        "enter",
        "enter",
        "into",
        "timeline",
        "what happened to the request under the cursor, and when",
        "look",
        ("requests",),
        9,
    ),
    Key(
        "enter",
        "enter",
        "into",
        "details",
        "all of an operation; of an event: its request's timeline, its replica or its operation",
        "look",
        ("events",),
        9,
    ),
    Key(
        "left", "←→", "less", "change", "the choice or the value before, → the next", "look", ("planner",), 9
    ),
    Key(
        "f",
        "f",
        "as_watched",
        "as watched",
        "ask for the model, GPUs and marks of what is watched, as far as it tells them",
        "look",
        ("planner",),
        8,
    ),
    Key("right", "→", "more", "change", "the next choice or value; digits are typed", "look", ("planner",)),
    Key(
        "v",
        "v",
        "kv_grid",
        "KV grid",
        "a sentence of yours as words, tokens, ids and bytes of KV; and back to the figures",
        "look",
        ("planner",),
        8,
    ),
    Key("plus", "+", "decode(1)", "decode", "in the KV grid: play one decode step", "look", ("planner",), 9),
    Key("minus", "-", "decode(-1)", "undo", "in the KV grid: take that step back", "look", ("planner",)),
    Key("tab", "tab", "next_pane", "pane", "next pane", "look", ("events",), 6),
    Key("shift+tab", "shift+tab", "previous_pane", "pane", "previous pane", "look", ("events",)),
    Key(
        "slash",
        "/",
        "filter",
        "filter",
        "show only what matches, a regular expression; after ! what does not",
        "look",
        ("requests", "events"),
        6,
    ),
    Key("s", "s", "sort", "sort", "next sort order", "look", ("requests",), 6),
    Key("v", "v", "which", "show", "all, those that wait, run, or ended", "look", ("requests",), 6),
    Key("space", "space", "mark", "mark", "pick a request for the Streams screen", "look", ("requests",), 3),
    Key("f", "f", "kinds", "kinds", "which kinds of events are shown", "look", ("events",), 7),
    Key(
        "c",
        "c",
        "reveal",
        "text",
        "show or hide the text that users get; the server's audit has who read what",
        "look",
        ("streams",),
        7,
    ),
    Key("t", "t", "theme", "theme", "next colour theme", "look", ALL),
    Key("colon", ":", "command", "command", "a command by name; tab completes", "look", ALL, 1),
    Key(
        "0",
        "0",
        "fleets",
        "fleets",
        "the fleets by number, each with its alarms",
        "look",
        tuple(screen for screen in ALL if screen != "planner"),
    ),
    Key("ctrl+n", "ctrl+n", "next_fleet", "fleet", "the next fleet of several", "look", ALL),
    Key("ctrl+p", "ctrl+p", "palette", "palette", "search all commands", "look", ALL, 1),
    Key(
        "D",
        "D",
        "act('drain')",
        "drain",
        "take a replica out: running requests finish, nothing new enters",
        "act",
        LISTS,
        9,
    ),
    Key(
        "U",
        "U",
        "act('undrain')",
        "undrain",
        "put a drained or draining replica back; else undo what was done last from here",
        "act",
        ALL,
        6,
    ),
    Key(
        "H",
        "H",
        "act('headroom')",
        "headroom",
        "how much of the KV pool new requests must leave free",
        "act",
        LISTS,
        8,
    ),
    Key(
        "L",
        "L",
        "act('limits')",
        "limits",
        "token budget and batch size, live",
        "act",
        LISTS,
    ),
    Key(
        "F",
        "F",
        "act('fence')",
        "fence",
        "kill a replica that is broken; on a fenced one: release it",
        "act",
        LISTS,
        7,
    ),
    Key(
        "T",
        "T",
        "act('tenant')",
        "tenant",
        "limit the tenant of the request under the cursor",
        "act",
        REQUESTS,
        7,
    ),
    Key(
        "T",
        "T",
        "act('tenant')",
        "tenant",
        "limit the tenant that the doctor proposes to limit",
        "act",
        ("fleet", "doctor"),
    ),
    Key(
        "P",
        "P",
        "act('preempt')",
        "preempt",
        "take the request under the cursor out of the batch, or move it",
        "act",
        REQUESTS,
        6,
    ),
    Key("B", "B", "act('shed')", "shed batch", "pause the batch tier, or let it go on", "act", ALL, 3),
    Key("S", "S", "act('scale')", "scale", "how many replicas there are to be", "act", ALL, 3),
    Key("I", "I", "act('inject')", "inject", "send or stop test traffic", "act", ALL, 6),
    Key(
        "X",
        "X",
        "act('cancel')",
        "cancel",
        "cancel the request under the cursor",
        "act",
        REQUESTS,
        9,
    ),
    Key("y", "y", "copy", "copy", "copy the id under the cursor (of an event: its line)", "look", ALL),
    Key("ctrl+l", "ctrl+l", "redraw", "redraw", "draw the whole screen anew", "look", ALL),
    Key("question_mark", "?", "help", "help", "this page", "look", ALL, 10),
    Key("q", "q", "quit", "quit", "leave; an engine started by this console ends with it", "look", ALL, 9),
)


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


def shown_key(key: str) -> str:
    """A key as the operator sees it."""
    return next((usual.shown for usual in KEYS if usual.key == key and " " not in usual.shown), key)


def key_bar(
    screen: ScreenName,
    width: int,
    why_not: Shown = "",
    tone: Tone = "bar",
    keymap: Keymap | None = None,
    without: frozenset[str] = frozenset(),
) -> Row:
    """The keys that fit: first those that look, then those that act, or why they do not. Those of the actions
    ``without`` are not named."""
    usual = [key for key in keys_of(screen, keymap) if key.bar and key.action not in without]
    kept = [key for key in usual if not (why_not and key.kind == "act")]
    while kept and _cells(kept) + len(why_not) > width:
        kept.remove(min(reversed(kept), key=lambda key: key.bar))
    last = [key for key in kept if key.action in ("help", "quit")]
    line = Line(width, tone).put(" ")
    for key in kept:
        if key.kind == "look" and key not in last:
            line.put(key.shown, "key").put(" ").put(key.label, "dim").put("  ")
    acting = [key for key in kept if key.kind == "act"]
    if why_not or acting:
        line.put("│ ", "rule").put(why_not, "warn").put("  " if why_not else "")
    for key in acting:
        line.put(key.shown, "act").put(" ").put(key.label, "dim").put("  ")
    line.put("│ ", "rule")
    for key in last:
        line.put(key.shown, "key").put(" ").put(key.label, "dim").put("  ")
    return line.row()


def _cells(keys: list[Key]) -> int:
    return 7 + sum(len(key.shown) + len(key.label) + 3 for key in keys)
