"""Every command of the command line once: its name, what it takes, and what it does. The command line, the
palette and the help know it from here; what an action takes is what the registry says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from infer_console.actions.action import REASON, Action
from infer_console.actions.params import Param
from infer_console.actions.registry import ACTIONS
from infer_console.commands.known import Known
from infer_console.view.look import LENSES, ScreenName

Words = Callable[[Known], Sequence[str]]
MOMENTS = ("now", "-5m", "-15m", "-1h")


def _anything(_known: Known) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    name: str
    #: What is offered, and, where it is ``closed``, all that is allowed.
    words: Words = _anything
    closed: bool = False
    optional: bool = False
    #: It takes what is left of the line as it stands.
    rest: bool = False
    #: What is allowed, in words, where ``words`` does not say it.
    allowed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    help: str
    arguments: tuple[Argument, ...] = ()
    #: What it opens the plan of; None for a command that only looks.
    action: Action | None = None

    @property
    def usage(self) -> str:
        """``drain [replica] [mode=] …``"""
        shown = [f"[{each.name}]" if each.optional else each.name.upper() for each in self.arguments]
        return " ".join((self.name, *shown, *(f"[{param.name}=]" for param in self.params)))

    @property
    def params(self) -> tuple[Param, ...]:
        return self.action.params if self.action is not None else ()

    @property
    def first_param(self) -> Param | None:
        """What a bare word is taken for."""
        return next((param for param in self.params if param is not REASON), None)


def _replicas(known: Known) -> Sequence[str]:
    return known.replicas


def _sides(known: Known) -> Sequence[str]:
    return (*known.replicas, *MOMENTS)


def _columns(known: Known) -> Sequence[str]:
    return tuple(f"{sign}{name}" for name in known.columns for sign in "-+")


_TARGETS: dict[str, Words] = {
    "replica": _replicas,
    "replica or fleet": _replicas,
    "request": lambda known: known.requests,
    "tenant": lambda known: known.tenants,
}


def _action_entry(action: Action) -> Entry:
    target = _TARGETS.get(action.target)
    if target is None:
        return Entry(name=action.name, help=f"{action.title}: its plan", action=action)
    name = action.target.partition(" ")[0]
    takes = Argument(name=name, words=target, optional=True)
    return Entry(name=action.name, help=f"{action.title}: its plan", arguments=(takes,), action=action)


_SCREENS: dict[ScreenName, str] = {
    "fleet": "all replicas; with a name: that fleet of those connected",
    "replica": "one replica",
    "requests": "every request of the fleet",
    "streams": "tokens as they are generated",
    "events": "what happened, and operations under way",
    "traffic": "test traffic and what it does",
    "planner": "the arithmetic of memory and speed",
    "doctor": "what is wrong, and who did what",
}
_SCREEN_ARGUMENTS: dict[ScreenName, tuple[Argument, ...]] = {
    "fleet": (Argument(name="name", words=lambda known: known.fleets, closed=True, optional=True),),
    "replica": (Argument(name="replica", words=_replicas, closed=True, optional=True),),
}

SCREENS: tuple[Entry, ...] = tuple(
    Entry(name=name, help=_SCREENS[name], arguments=_SCREEN_ARGUMENTS.get(name, ()))
    for name in get_args(ScreenName)
)
LOOKS: tuple[Entry, ...] = (
    Entry(
        name="filter",
        help="show only rows that match; without an expression: all",
        arguments=(Argument(name="expression", optional=True, rest=True),),
    ),
    Entry(
        name="sort",
        help="the order of this screen's list",
        arguments=(Argument(name="column", words=lambda known: known.sorts, closed=True),),
    ),
    Entry(
        name="columns",
        help="show (+X) and hide (-X) columns of this screen's table; without a word: as they come",
        arguments=(Argument(name="changes", words=_columns, optional=True, rest=True),),
    ),
    Entry(
        name="lens",
        help="what the block map shows",
        arguments=(Argument(name="lens", words=lambda _known: LENSES, closed=True),),
    ),
    Entry(
        name="theme",
        help="colours",
        arguments=(Argument(name="theme", words=lambda known: known.themes, closed=True),),
    ),
    Entry(
        name="save",
        help="keep this screen with its sort, filter, lens and columns under a name",
        arguments=(Argument(name="name", words=lambda known: known.views),),
    ),
    Entry(
        name="view",
        help="a saved view",
        arguments=(Argument(name="name", words=lambda known: known.views, closed=True),),
    ),
    Entry(
        name="export",
        help="write a recording; `names` keeps request ids and tenants in it",
        arguments=(
            Argument(name="span", words=lambda _known: ("-10m..now", "-1h..now"), optional=True),
            Argument(name="file", optional=True),
            Argument(name="names", words=lambda _known: ("names",), closed=True, optional=True),
        ),
    ),
    Entry(
        name="screenshot",
        help="what is on the screen into a file: FILE.svg with its colours, FILE.txt without",
        arguments=(Argument(name="file", optional=True),),
    ),
    Entry(
        name="sentence",
        help="the KV grid of a sentence: words, tokens, ids, bytes; without one: of the last",
        arguments=(Argument(name="text", optional=True, rest=True),),
    ),
    Entry(
        name="diff",
        help="two replicas, or two moments, beside each other",
        arguments=(Argument(name="a", words=_sides), Argument(name="b", words=_sides)),
    ),
    Entry(
        name="at",
        help="show a moment on all screens",
        arguments=(Argument(name="moment", words=lambda _known: MOMENTS),),
    ),
    Entry(name="undo", help="the plan of what takes the last action back"),
    Entry(name="help", help="the keys of this screen"),
    Entry(name="palette", help="search all commands"),
    Entry(name="q", help="leave"),
)
#: In the palette's order: what goes somewhere, what looks, what acts, and leaving last.
_LAST = ("undo", "q")
TABLE: tuple[Entry, ...] = (
    *SCREENS,
    *(entry for entry in LOOKS if entry.name not in _LAST),
    *(_action_entry(action) for action in ACTIONS),
    *(entry for entry in LOOKS if entry.name in _LAST),
)
BY_NAME: dict[str, Entry] = {entry.name: entry for entry in TABLE}
#: Words that operators bring with them.
ALIASES = {"quit": "q", "exit": "q", "h": "help"}
