"""The vital line: the few numbers that say whether users suffer."""

from dataclasses import dataclass

from infer_engine.protocol import Percentiles

from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import UNKNOWN, age, count, milliseconds, percent, rate, seconds
from infer_console.view.row import Line, Role, Row, Shown


@dataclass(frozen=True, slots=True)
class Vital:
    """One group of the line in a long and a short wording; the higher ``need``, the sooner it is left out."""

    long: tuple[tuple[Shown, Role], ...]
    short: tuple[tuple[Shown, Role], ...]
    need: int = 0

    @staticmethod
    def cells(parts: tuple[tuple[Shown, Role], ...]) -> int:
        return sum(len(text) for text, _ in parts)


def vital_row(vitals: list[Vital], width: int) -> Row:
    """As many groups as fit in their short wordings, the least needed left out; then the most needed ones
    get their long wordings for as long as there is room."""
    kept = list(vitals)
    while len(kept) > 1 and sum(Vital.cells(vital.short) + 2 for vital in kept) > width:
        kept.remove(max(kept, key=lambda vital: vital.need))
    wordings = {id(vital): vital.short for vital in kept}
    spare = width - sum(Vital.cells(vital.short) + 2 for vital in kept)
    for vital in sorted(kept, key=lambda vital: vital.need):
        extra = Vital.cells(vital.long) - Vital.cells(vital.short)
        if extra <= spare:
            wordings[id(vital)] = vital.long
            spare -= extra
    line = Line(width)
    for vital in kept:
        line.put("  " if line.used else " ")
        for text, role in wordings[id(vital)]:
            line.put(text, role)
    return line.row()


def _value(text: SafeText, role: Role = "strong") -> tuple[SafeText, Role]:
    return text, ("dim" if text == UNKNOWN else role)


def _with_unit(text: SafeText, unit: str) -> SafeText:
    return text if text == UNKNOWN else safe(f"{text}{unit}")


def _latency(name: str, figures: Percentiles, milli: bool, need: int) -> Vital:
    show, unit = (milliseconds, "ms") if milli else (seconds, "s")
    p50, p99 = _with_unit(show(figures.p50), unit), _with_unit(show(figures.p99), unit)
    return Vital(
        ((safe(f"{name} p50 "), "label"), _value(p50), (" p99 ", "label"), _value(p99)),
        ((safe(f"{name}99 "), "label"), _value(p99)),
        need,
    )


def fleet_vitals(picture: Picture) -> list[Vital]:
    totals = picture.totals
    if totals is None:
        return []
    waiting: Role = "warn" if totals.waiting else "strong"
    oldest = totals.queue_wait_s.oldest
    oldest_parts: tuple[tuple[Shown, Role], ...] = (
        ((" oldest ", "label"), (age(oldest), "warn")) if totals.waiting and oldest is not None else ()
    )
    kv = percent(totals.kv_used_ratio)
    qwait = _with_unit(seconds(totals.queue_wait_s.p99), "s")
    tokens = rate(totals.tokens_per_s)
    return [
        _pair("RUN", count(totals.running), 0),
        Vital(
            (("WAIT ", "label"), _value(count(totals.waiting), waiting), *oldest_parts),
            (("WAIT ", "label"), _value(count(totals.waiting), waiting)),
            0,
        ),
        Vital((("QWAIT p99 ", "label"), _value(qwait)), (("QW99 ", "label"), _value(qwait)), 3),
        _pair("KV", _with_unit(kv, "%"), 1),
        Vital((_value(tokens), (" tok/s", "label")), (_value(tokens), (" tok/s", "label")), 5),
        _latency("TTFT", totals.ttft_s, milli=False, need=1),
        _latency("ITL", totals.itl_s, milli=True, need=2),
        _pair("PRE", count(totals.preemptions), 6),
    ]


def replica_vitals(replica: ReplicaPicture) -> list[Vital]:
    status = replica.status
    waiting: Role = "warn" if status.waiting else "strong"
    oldest = status.queue_wait_s.oldest
    oldest_parts: tuple[tuple[Shown, Role], ...] = (
        ((" oldest ", "label"), (age(oldest), "warn")) if status.waiting and oldest is not None else ()
    )
    running = count(status.running)
    if status.max_running is not None and status.running is not None:
        running = safe(f"{running}/{status.max_running}")
    qwait = _with_unit(seconds(status.queue_wait_s.p99), "s")
    tokens = rate(status.tokens_per_s)
    hit = _with_unit(percent(status.prefix_hit_ratio), "%")
    return [
        _pair("RUN", running, 0),
        Vital(
            (("WAIT ", "label"), _value(count(status.waiting), waiting), *oldest_parts),
            (("WAIT ", "label"), _value(count(status.waiting), waiting)),
            0,
        ),
        Vital((("QWAIT p99 ", "label"), _value(qwait)), (("QW99 ", "label"), _value(qwait)), 3),
        Vital((_value(tokens), (" tok/s", "label")), (_value(tokens), (" tok/s", "label")), 4),
        _latency("TTFT", status.ttft_s, milli=False, need=1),
        _latency("ITL", status.itl_s, milli=True, need=2),
        Vital(
            (("PRE ", "label"), _value(count(status.preemptions_per_min)), ("/m", "label")),
            (("PRE ", "label"), _value(count(status.preemptions_per_min)), ("/m", "label")),
            5,
        ),
        _pair("hit", hit, 6),
    ]


def _pair(name: str, value: SafeText, need: int) -> Vital:
    parts: tuple[tuple[Shown, Role], ...] = ((safe(f"{name} "), "label"), _value(value))
    return Vital(parts, parts, need)
