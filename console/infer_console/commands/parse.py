"""What was typed on the command line, as a command; or which word is wrong, and what is allowed in its place.

Nothing is done here: a command that acts becomes the action with what its dialog is to be filled with.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from infer_console.actions.action import Action
from infer_console.actions.params import Param, ParamError
from infer_console.commands.known import Known
from infer_console.commands.table import ALIASES, BY_NAME, Argument, Entry

MAX_LINE = 512
#: How alike a word has to be to one that is meant, and how many of the allowed ones are told.
ALIKE, MOST_TOLD = 0.5, 8
_PARAM = re.compile(r"([a-z_]+)=(.*)", re.DOTALL)
_YES, _NO = ("yes", "on", "true", "1"), ("no", "off", "false", "0")
#: Words after an action that mean another one.
_OTHER = {("shed", "off"): "shed-off", ("inject", "stop"): "inject-stop"}


class CommandError(ValueError):
    """``str()`` says which word, what was given and what is allowed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """``values`` by the names of the entry's arguments. With ``action``: what its dialog opens on; a target
    that was not named is None."""

    entry: Entry
    values: dict[str, str] = field(default_factory=dict[str, str])
    action: Action | None = None
    target: str | None = None
    given: dict[str, str | bool | None] = field(default_factory=dict[str, "str | bool | None"])


def parse(line: str, known: Known) -> Asked:
    """Raise CommandError for what is no command."""
    if len(line) > MAX_LINE:
        raise CommandError(f"the line has {len(line)} characters, allowed are {MAX_LINE}")
    name, _, rest = line.strip().partition(" ")
    entry = BY_NAME.get(ALIASES.get(name, name))
    if entry is None:
        raise CommandError(_wrong("command", name, tuple(BY_NAME)))
    if entry.action is not None:
        return _act(entry, rest.strip(), known)
    return Asked(entry, _arguments(entry, rest.strip(), known))


def _arguments(entry: Entry, rest: str, known: Known) -> dict[str, str]:
    values: dict[str, str] = {}
    for argument in entry.arguments:
        word, _, left = (rest, "", "") if argument.rest else rest.partition(" ")
        if not word:
            if argument.optional:
                continue
            raise CommandError(f"{entry.name}: {argument.name} is missing; {_allowed(argument, known)}")
        _check(entry, argument, word, known)
        values[argument.name] = word
        rest = left.strip()
    if rest:
        raise CommandError(f"{entry.name}: {rest[:40]!r} is too much; usage: {entry.usage}")
    return values


def _check(entry: Entry, argument: Argument, word: str, known: Known) -> None:
    words = argument.words(known)
    if argument.closed and word not in words:
        raise CommandError(f"{entry.name}: {_wrong(argument.name, word, words)}")


def _allowed(argument: Argument, known: Known) -> str:
    words = argument.words(known)
    return f"allowed is {_some(words)}" if words else f"usage: {argument.name.upper()}"


def _act(entry: Entry, rest: str, known: Known) -> Asked:
    assert entry.action is not None
    words = rest.split()
    if entry.name == "cancel" and words[:1] == ["where"]:
        return _cancel_where(rest.partition(" ")[2].strip())
    if words and (entry.name, words[0]) in _OTHER:
        entry, words = BY_NAME[_OTHER[entry.name, words[0]]], words[1:]
    elif words[:1] == ["on"] and entry.name == "shed":
        words = words[1:]
    assert entry.action is not None
    target: str | None = None
    given: dict[str, str | bool | None] = {}
    for at, word in enumerate(words):
        param = _PARAM.fullmatch(word)
        if param is not None and param[1] == "reason":
            given["reason"] = " ".join((param[2], *words[at + 1 :]))  # it may have blanks
            break
        if param is not None:
            given[param[1]] = param[2] or None  # what is still to be typed is as it comes
        elif at == 0 and entry.arguments and not _is_value(entry, word, known):
            target = _target(entry, word, known)
        else:
            _bare(entry, word, given)
    _check_given(entry, given)
    return Asked(entry, {}, entry.action, target, given)


def _cancel_where(where: str) -> Asked:
    entry = BY_NAME["cancel-where"]
    if not where:
        raise CommandError("cancel where: the expression is missing, such as tenant=acme and age_s>60")
    given: dict[str, str | bool | None] = {"where": where}
    _check_given(entry, given)
    return Asked(entry, {}, entry.action, None, given)


def _is_value(entry: Entry, word: str, known: Known) -> bool:
    """The first word is meant for the first parameter, not a target: ``headroom 20%``."""
    first = entry.first_param
    if entry.action is None or entry.action.target != "replica or fleet" or word in known.replicas:
        return False
    return first is not None and _fits(first, word)


def _fits(param: Param, word: str) -> bool:
    try:
        param.parse(word)
    except ParamError:
        return False
    return True


def _target(entry: Entry, word: str, known: Known) -> str:
    """A replica is there or not; of requests and tenants not all are known here."""
    argument = entry.arguments[0]
    words = argument.words(known)
    if argument.name == "replica" and word not in words:
        raise CommandError(f"{entry.name}: {_wrong('replica', word, words)}")
    if argument.name == "request" and word not in words:
        begins = [each for each in words if each.startswith(word)]
        if len(begins) != 1:
            raise CommandError(f"{entry.name}: {_wrong('request', word, words)}")
        return begins[0]
    return word


def _bare(entry: Entry, word: str, given: dict[str, str | bool | None]) -> None:
    """A word without ``name=``: a flag by its name, else the first parameter's value."""
    for param in entry.params:
        if param.kind == "flag" and param.name == word:
            given[param.name] = True
            return
    first = entry.first_param
    if first is None or first.name in given:
        raise CommandError(f"{entry.name}: {word[:40]!r} is too much; usage: {entry.usage}")
    given[first.name] = word


def _check_given(entry: Entry, given: dict[str, str | bool | None]) -> None:
    """Each value by itself: what is left out is asked for in the dialog."""
    params = {param.name: param for param in entry.params}
    for name, value in given.items():
        param = params.get(name)
        if param is None:
            raise CommandError(f"{entry.name}: {_wrong('parameter', name, tuple(params))}")
        if param.kind == "flag" and isinstance(value, str):
            given[name] = _flag(entry, name, value)
            continue
        try:
            param.parse(value)
        except ParamError as error:
            near = _near(str(value), param.choices)
            raise CommandError(f"{entry.name}: {error}{near}") from error


def _flag(entry: Entry, name: str, value: str) -> bool:
    if value in _YES or value in _NO:
        return value in _YES
    raise CommandError(f"{entry.name}: {name}: {value[:40]!r} was given, allowed is yes or no")


def _wrong(what: str, given: str, allowed: Sequence[str]) -> str:
    near = _near(given, allowed)
    return f"{what}: {given[:40]!r} was given{near or ','} allowed is {_some(allowed)}"


def _near(given: str, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(given.casefold()[:64], allowed[:500], n=1, cutoff=ALIKE)
    return f"; did you mean {near[0]}?" if near else ""


def _some(words: Sequence[str]) -> str:
    if not words:
        return "nothing here"
    more = f" and {len(words) - MOST_TOLD} more" if len(words) > MOST_TOLD else ""
    return f"{', '.join(words[:MOST_TOLD])}{more}"
