"""What the next word may be, and the palette's search: both over the one table."""

from collections.abc import Sequence
from typing import NamedTuple

from infer_console.commands.known import Known
from infer_console.commands.table import ALIASES, BY_NAME, TABLE, Entry

#: Of more than so many nobody reads.
MOST_OFFERED = 64
#: Words of a first argument that the palette lists with their command.
MOST_SPELLED_OUT = 24


def candidates(line: str, known: Known) -> list[str]:
    """Words that the last one on the line may become, those that begin like it."""
    words = line.split(" ")
    last = words[-1]
    return [word for word in _offered(words, known) if word.startswith(last)][:MOST_OFFERED]


def with_last(line: str, word: str) -> str:
    """The line with its last word replaced."""
    before, blank, _ = line.rpartition(" ")
    return f"{before}{blank}{word}"


def _offered(words: Sequence[str], known: Known) -> Sequence[str]:
    if len(words) == 1:
        return sorted(BY_NAME)
    entry = entry_of(words[0])
    if entry is None:
        return ()
    if entry.action is None:
        return _argument_words(entry, len(words) - 2, known)
    return _action_words(entry, words[1:], known)


def _argument_words(entry: Entry, place: int, known: Known) -> Sequence[str]:
    if entry.arguments and entry.arguments[-1].rest:
        place = min(place, len(entry.arguments) - 1)
    return entry.arguments[place].words(known) if place < len(entry.arguments) else ()


def _action_words(entry: Entry, words: Sequence[str], known: Known) -> list[str]:
    last = words[-1]
    name, equals, _ = last.partition("=")
    if equals:
        chosen = next((param for param in entry.params if param.name == name), None)
        values = () if chosen is None else ("yes", "no") if chosen.kind == "flag" else chosen.choices
        return [f"{name}={value}" for value in values]
    offered: list[str] = []
    if len(words) == 1:
        offered += entry.arguments[0].words(known) if entry.arguments else ()
        offered += {"shed": ("on", "off"), "inject": ("stop",), "cancel": ("where",)}.get(entry.name, ())
    first = entry.first_param
    used = {word.partition("=")[0] for word in words[:-1]}
    if first is not None and (len(words) > 1 or not entry.arguments):
        offered += first.choices
    return [*offered, *(f"{param.name}=" for param in entry.params if param.name not in used)]


def entry_of(name: str) -> Entry | None:
    return BY_NAME.get(ALIASES.get(name, name))


class Found(NamedTuple):
    """A line of the palette; one that is not ``whole`` wants to be finished on the command line."""

    line: str
    help: str
    whole: bool


def palette(search: str, known: Known) -> list[Found]:
    """Commands that have the characters of ``search`` in their order, the best first; without any, every
    command once in the table's order, so that what is first is never what ends or changes something."""
    wanted = search.casefold().replace(" ", "")
    if not wanted:
        return [_bare(entry) for entry in TABLE][:MOST_OFFERED]
    scored = [
        (score, number, each)
        for number, each in enumerate(_lines(known))
        if (score := _score(wanted, each)) is not None
    ]
    return [each for _, _, each in sorted(scored)][:MOST_OFFERED]


def _bare(entry: Entry) -> Found:
    return Found(entry.name, entry.help, all(argument.optional for argument in entry.arguments))


def _lines(known: Known) -> list[Found]:
    made: list[Found] = []
    for entry in TABLE:
        made.append(_bare(entry))
        if entry.arguments and entry.name != "columns":
            whole = sum(not argument.optional for argument in entry.arguments) <= 1
            words = entry.arguments[0].words(known)[:MOST_SPELLED_OUT]
            made += [Found(f"{entry.name} {word}", entry.help, whole) for word in words]
    return made


def _score(wanted: str, found: Found) -> int | None:
    """Less is better: characters passed over, words of the line before words of its help."""
    for text, extra in ((found.line, 0), (f"{found.line} {found.help}", 200)):
        at = passed = 0
        text = text.casefold()
        for character in wanted:
            next_at = text.find(character, at)
            if next_at < 0:
                break
            passed += next_at - at
            at = next_at + 1
        else:
            return extra + passed * 4 + len(found.line)
    return None
