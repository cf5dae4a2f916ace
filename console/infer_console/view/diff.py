"""Two moments, or two replicas, beside each other: what differs between them."""

import math
import textwrap
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import NamedTuple

from infer_engine.protocol import Replica

from infer_console.past.when import moment
from infer_console.state.link import STALE_AFTER_S
from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.box import CLOSES, box, titled
from infer_console.view.format import UNKNOWN, age, clock, count, milliseconds, percent, rate, seconds
from infer_console.view.row import Line, Role, Row, Shown, with_tone

#: Characters of words that are told.
WORDS = 240
Show = Callable[[float | None], SafeText]


class SideError(Exception):
    """What was named cannot be compared; ``str()`` says why in one line."""


class Fact(NamedTuple):
    name: str
    #: A figure, or words.
    value: float | str | None
    show: Show = count
    unit: Shown = ""


class Side(NamedTuple):
    title: str
    facts: dict[str, Fact]
    #: For so long nothing had been told by then: all that is known is from before.
    silent_s: float | None = None


class Difference(NamedTuple):
    name: SafeText
    a: SafeText
    b: SafeText
    change: SafeText


def parse_side(word: str, now: float, latest: float | None = None) -> tuple[str | None, float | None]:
    """``r2``, ``-10m``, ``03:05:10/r2``: the replica, None for the fleet, and the moment (as
    ``past.when.moment`` reads it), None for the one that is shown. SideError for what is no time and cannot
    be a replica."""
    first, slash, replica = word.partition("/")
    if slash and not replica:
        raise SideError(f"{word!r}: after the / a replica is wanted")
    if first == "now":
        return replica or None, None
    try:
        return replica or None, moment(first, now, latest)
    except ValueError as error:
        if slash or first[:1] in ("-", "+", "") or ":" in first:
            raise SideError(str(error)) from error
        return first, None


def side_of(word: str, picture: Picture | None, replica: str | None) -> Side:
    """What is compared of a picture. SideError where there is nothing."""
    if picture is None or picture.totals is None:
        raise SideError(f"{word}: that time is not here (yet)")
    age_s = picture.link.age_s
    silent_s = age_s if age_s is not None and age_s > STALE_AFTER_S else None
    if replica is None:
        return Side(f"fleet {clock(picture.at)}", {fact.name: fact for fact in _fleet(picture)}, silent_s)
    known = picture.replicas.get(replica)
    if known is None:
        raise SideError(f"{word}: there is no replica {replica} at {clock(picture.at)}")
    return Side(f"{replica} {clock(picture.at)}", {fact.name: fact for fact in _replica(known)}, silent_s)


def differences(a: Side, b: Side) -> list[Difference]:
    """In the order of the facts; those that look the same are left out."""
    found: list[Difference] = []
    for name in dict.fromkeys((*a.facts, *b.facts)):
        mine, theirs = a.facts.get(name), b.facts.get(name)
        left, right = _shown(mine), _shown(theirs)
        if left != right:
            found.append(Difference(safe(name, 28), left, right, _change(mine, theirs)))
    return found


def diff_document(a: Side, b: Side) -> dict[str, object]:
    """The same for scripts: the figures as they are, seconds and shares, null where they are not known."""
    names = list(dict.fromkeys((*a.facts, *b.facts)))
    values = [(name.strip(), *(_value(side.facts.get(name)) for side in (a, b))) for name in names]
    differ = [{"name": name, "a": left, "b": right} for name, left, right in values if left != right]
    return {
        "version": 1,
        "a": a.title,
        "b": b.title,
        "a_silent_s": a.silent_s,
        "b_silent_s": b.silent_s,
        "differ": differ,
        "equal": len(names) - len(differ),
    }


def _value(fact: Fact | None) -> float | str | None:
    return fact.value if fact is not None else None


def diff_rows(a: Side, b: Side, width: int, height: int | None = None) -> list[Row]:
    """A head, a row for every difference, and how much is equal; at most ``height`` rows."""
    found = differences(a, b)
    equal = len({*a.facts, *b.facts}) - len(found)
    first = min(26, width // 3)
    column = max(8, (width - first - 2) // 3)
    rows = [
        _row((safe(""), safe(a.title, 60), safe(b.title, 60), safe("change")), first, column, width, "title")
    ]
    rows += [
        Line(width)
        .put(safe(f" {side.title}: nothing was told for {age(side.silent_s)} by then"), "crit")
        .row()
        for side in ((a,) if a.title == b.title else (a, b))
        if side.silent_s is not None
    ]
    room = math.inf if height is None else max(0, height - len(rows) - 1)
    shown = 0
    for more, each in enumerate(found, 1):
        told = [_row(part, first, column, width) for part in _parts(each, column - 1)]
        if len(told) > room - (more < len(found)):  # a row stays to say how many are not shown
            break
        rows, room, shown = rows + told, room - len(told), more
    if shown < len(found):
        rows.append(Line(width).put(safe(f" … {len(found) - shown} more differ"), "dim").row())
    same = f" {equal} figures are the same" if found else " nothing differs"
    rows.append(Line(width).put(safe(same), "dim").row())
    return rows


def diff_box(a: Side, b: Side, width: int, height: int) -> list[Row]:
    """The rows in a frame, for a box over a screen."""
    rows = diff_rows(a, b, max(1, width - 4), max(3, height - 2))
    return box(titled(width, "What differs"), (with_tone(row, "dialog") for row in rows), CLOSES)


def _parts(difference: Difference, cells: int) -> Iterator[Difference]:
    """A row, and further ones where the words of a side do not fit into so many cells."""
    name, a, b, change = difference
    for left, right in zip_longest(_wrapped(a, cells), _wrapped(b, cells), fillvalue=safe("")):
        yield Difference(name, left, right, change)
        name = change = safe("")


def _wrapped(words: SafeText, cells: int) -> list[SafeText]:
    return [safe(line, cells) for line in textwrap.wrap(words, cells, break_on_hyphens=False)]


def _row(
    cells: tuple[SafeText, SafeText, SafeText, SafeText],
    first: int,
    column: int,
    width: int,
    role: Role = "text",
) -> Row:
    name, a, b, change = cells
    title = role == "title"
    line = Line(width).put(" ").put(safe(name, max(1, first - 2)), role if title else "label").to(first)
    tones: tuple[Role, ...] = (role,) * 3 if title else (role, "strong", "accent")
    for text, tone in zip((a, b, change), tones, strict=True):
        start = line.used
        line.put(safe(text, column - 1), tone).to(start + column)
    return line.row()


def _shown(fact: Fact | None) -> SafeText:
    if fact is None or fact.value is None:
        return UNKNOWN
    if isinstance(fact.value, str):
        return safe(fact.value, WORDS) if fact.value else safe("none")
    shown = fact.show(fact.value)
    return safe(f"{shown}{fact.unit}") if shown != UNKNOWN else shown


def _change(a: Fact | None, b: Fact | None) -> SafeText:
    """``+38 (×2.1)``; of words nothing more is to be said."""
    before, after = (fact.value if fact is not None else None for fact in (a, b))
    if isinstance(before, str) or isinstance(after, str) or before is None or after is None:
        return safe("")
    fact = b or a
    assert fact is not None
    grown = after - before
    by = f"{'+' if grown > 0 else '-'}{fact.show(abs(grown))}{fact.unit}"
    return safe(f"{by} (×{after / before:.2g})" if before > 0 and after > 0 else by)


def _fleet(picture: Picture) -> Iterator[Fact]:
    totals, fleet = picture.totals, picture.fleet
    assert totals is not None
    yield Fact("ready replicas", totals.ready)
    yield Fact("replicas", totals.replicas)
    yield Fact("running", totals.running)
    yield Fact("waiting", totals.waiting)
    for reason, number in sorted(totals.waiting_reasons.items()):
        yield Fact(f"  waiting: {reason}", number)
    yield Fact("KV used", totals.kv_used_ratio, percent, "%")
    yield Fact("tokens/s", totals.tokens_per_s, rate)
    yield from _latencies(totals)
    yield Fact("preemptions so far", totals.preemptions)
    if fleet is not None:
        yield Fact("gateway connections", fleet.gateway.connections)
        yield Fact("gateway loop lag", fleet.gateway.loop_lag_s, milliseconds, "ms")
        yield Fact("test traffic", fleet.traffic.profile if fleet.traffic.running else "")
        if fleet.spec is not None:
            yield Fact("batch shed", "yes" if fleet.spec.shed else "no")
        if fleet.scaling is not None:
            yield Fact("replicas advised", fleet.scaling.recommended)
    yield Fact("held at the gateway", len(picture.held))
    for name, replica in picture.replicas.items():
        status = replica.status
        state = status.state if status.health in (None, "ok", "idle") else f"{status.state}, {status.health}"
        yield Fact(f"{safe_identifier(name)} state", state)
        yield Fact(f"{safe_identifier(name)} KV used", _used_ratio(status), percent, "%")
        yield Fact(f"{safe_identifier(name)} waiting", status.waiting)
    yield Fact("alarms", ", ".join(sorted({alarm.rule for alarm in picture.alarms})))


def _replica(replica: ReplicaPicture) -> Iterator[Fact]:
    status = replica.status
    kv = status.kv
    yield Fact("state", status.state)
    yield Fact("health", status.health)
    yield Fact("running", status.running)
    yield Fact("waiting", status.waiting)
    for reason, number in sorted(status.waiting_reasons.items()):
        yield Fact(f"  waiting: {reason}", number)
    yield Fact("KV used", _used_ratio(status), percent, "%")
    for name in ("total", "used", "cached", "free", "admit_limit", "batch_limit", "block_size", "host_used"):
        yield Fact(f"{name.replace('_', ' ')}{'' if name == 'block_size' else ' blocks'}", getattr(kv, name))
    yield Fact("tokens/s", status.tokens_per_s, rate)
    yield from _latencies(status)
    yield Fact("preemptions/min", status.preemptions_per_min, rate)
    yield Fact("prefix hits", status.prefix_hit_ratio, percent, "%")
    if status.step is not None:
        yield Fact("step", status.step.duration_s, milliseconds, "ms")
        yield Fact("step: decode tokens", status.step.decode_tokens)
        yield Fact("step: prefill tokens", status.step.prefill_tokens)
    for name, limit in sorted(status.limits.items()):
        yield Fact(f"limit {name}", limit)
    if status.spec is not None:
        yield Fact("cordoned", "yes" if status.spec.cordoned else "no")
        yield Fact("fenced", status.spec.fenced or "no")
    for name in ("device", "dtype", "error"):
        yield Fact(name, getattr(status, name))
    yield Fact("incarnation", status.incarnation)


def _latencies(of: object) -> Iterator[Fact]:
    """Of a replica or of the fleet."""
    queue, ttft, itl = (getattr(of, name) for name in ("queue_wait_s", "ttft_s", "itl_s"))
    yield Fact("queue wait p99", queue.p99, seconds, "s")
    yield Fact("oldest waits", queue.oldest, seconds, "s")
    yield Fact("TTFT p50", ttft.p50, seconds, "s")
    yield Fact("TTFT p99", ttft.p99, seconds, "s")
    yield Fact("ITL p50", itl.p50, milliseconds, "ms")
    yield Fact("ITL p99", itl.p99, milliseconds, "ms")


def _used_ratio(status: Replica) -> float | None:
    kv = status.kv
    return kv.used / kv.total if kv.used is not None and kv.total else None
