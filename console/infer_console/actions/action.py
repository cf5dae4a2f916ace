"""One thing that an operator can do: plan it, be told what it will do, and have it built as a command."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
from infer_engine.durations import show_duration
from infer_engine.protocol import Command

from infer_console.actions.params import Given, Param, ParamError, Value, Values
from infer_console.state.link import STALE_AFTER_S
from infer_console.state.picture import Picture

#: safe: takes nothing from anybody. reversible: can be taken back. destructive: somebody's work is lost.
Danger = Literal["safe", "reversible", "destructive"]
#: What an action is opened on. ``replica or fleet``: on one replica, or on all when no target is given.
TargetKind = Literal["replica", "request", "tenant", "fleet", "replica or fleet"]


def _never(_picture: Picture, _target: str | None, _values: Values) -> bool:
    return False


class Verdict(NamedTuple):
    """Whether what was asked for has come about: True, not yet (False), or it cannot be seen (None)."""

    done: bool | None
    words: str


class Undo(NamedTuple):
    """The action that takes another back, as a dialog is opened on it."""

    action: str
    target: str | None
    given: Mapping[str, str | bool | None]


def _unseen(_picture: Picture, _target: str | None, _values: Values) -> Verdict | None:
    return None


def _for_good(_picture: Picture, _target: str | None, _values: Values) -> Undo | None:
    return None


def _by_danger(_picture: Picture, _target: str | None, _values: Values) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """All functions are pure. ``target`` is the id that the action was opened on, never a row; None for the
    fleet."""

    #: The key on the console; empty when it is reached another way.
    key: str
    name: str
    title: str
    danger: Danger
    target: TargetKind
    #: What the server must be able to do, one of its capabilities.
    capability: str
    params: tuple[Param, ...]
    build: Callable[[str | None, Values], Command]
    #: What it will do, said from the picture alone; the server's dry run says it with authority.
    effect: Callable[[Picture, str | None, Values], list[str]]
    #: Why it cannot be done to this target in its present state; None when it can.
    refusal: Callable[[Picture, str | None], str | None]
    #: Whether it would leave everything as it is.
    unchanged: Callable[[Picture, str | None, Values], bool] = _never
    #: Allowed on an old view: it reduces risk. The dialog then says how old the view is.
    when_stale: bool = False
    #: Whether it has come about, looked for on the screen after it was applied; None where nothing can be
    #: looked for.
    verify: Callable[[Picture, str | None, Values], Verdict | None] = _unseen
    #: What would take it back, from the picture *before* it is applied; None where nothing does.
    undo: Callable[[Picture, str | None, Values], Undo | None] = _for_good
    #: A word to be typed beside those that its danger asks for: how many it is about.
    count: Callable[[Picture, str | None, Values], str] = _by_danger
    #: Said in place of the server's prediction while it would leave everything as it is; empty where the
    #: server is asked all the same.
    unasked: str = ""
    #: Its dialog starts in the first field: without an answer there it means nothing.
    asks: bool = False

    def parse(self, given: Given) -> dict[str, Value]:
        """Values of all parameters. Raise ParamError for one that does not fit or does not exist."""
        known = {param.name for param in self.params}
        for name, value in given.items():
            if name not in known:
                raise ParamError(name, value, f"one of {', '.join(sorted(known))}")
        return {param.name: param.parse(given.get(param.name)) for param in self.params}

    def command(self, target: str | None, values: Values, *, actor: str, dry_run: bool = False) -> Command:
        """The command to send. ``values`` come from ``parse``."""
        return msgspec.structs.replace(self.build(target, values), actor=actor, dry_run=dry_run)

    def allowed(self, picture: Picture, target: str | None) -> str | None:
        """None when the action may be taken now, else why not, in words for the operator."""
        if picture.read_only:
            return read_only_words(picture)
        if picture.link.state in ("starting", "connecting", "lost"):
            return "there is no connection to the server"
        if picture.capabilities and self.capability not in picture.capabilities:
            return f"this server cannot {self.name}"
        if not self.when_stale and is_stale(picture):
            return f"the view is {view_age(picture)} old; {self.name} waits for a live one"
        return self.refusal(picture, target)

    def caution(self, picture: Picture) -> str | None:
        """What to say in the dialog before anything else: how old the view is, when it is old."""
        return (
            f"the view is {view_age(picture)} old: what is shown may have changed"
            if is_stale(picture)
            else None
        )


def every_replica(picture: Picture, target: str | None, _values: Values) -> str:
    """All replicas at once want their number typed."""
    return str(len(picture.replicas)) if target is None and len(picture.replicas) > 1 else ""


def read_only_words(picture: Picture) -> str:
    if "watched" in picture.capabilities:
        return "this server can only be watched"
    if picture.role in ("viewer", "content"):
        return f"read-only: this server lets you look, not act (role {picture.role})"
    return "this console is read-only"


def is_stale(picture: Picture) -> bool:
    age_s = picture.link.age_s
    return picture.link.state == "stale" or age_s is None or age_s > STALE_AFTER_S


def view_age(picture: Picture) -> str:
    age_s = picture.link.age_s
    return "of unknown age and" if age_s is None else f"{age_s:.0f} s"


#: Every command takes one.
REASON = Param(name="reason", kind="text", label="reason", highest=256, optional=True, hint="for the audit")
MAX_REVERT_S = 86_400.0
#: Of changes that may go back by themselves.
REVERT_AFTER = Param(
    name="revert_after",
    kind="duration",
    label="revert after",
    lowest=1.0,
    highest=MAX_REVERT_S,
    optional=True,
    hint="like 10m; empty: stays",
)


def whole(values: Values, name: str) -> int | None:
    value = number(values, name)
    return None if value is None else int(value)


def text(values: Values, name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""


def number(values: Values, name: str) -> float | None:
    value = values.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def goes_back(values: Values) -> list[str]:
    """What the dialog says of a change that is to go back by itself."""
    after_s = number(values, "revert_after")
    return [] if after_s is None else [f"goes back by itself after {show_duration(after_s)}"]
