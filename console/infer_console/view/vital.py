"""The vital line: the few numbers that say whether users suffer."""

from dataclasses import dataclass

from infer_engine.protocol import Percentiles, Slo

from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import UNKNOWN, age, count, milliseconds, percent, rate, seconds
from infer_console.view.row import Line, Role, Row, Shown
from infer_console.view.slo import OVER, is_over, marked, role_of, targets

Parts = tuple[tuple[Shown, Role], ...]


@dataclass(frozen=True, slots=True)
class Vital:
    """One group of the line in wordings from short to long; the higher ``need``, the sooner it is left
    out."""

    wordings: tuple[Parts, ...]
    need: int = 0

    @staticmethod
    def cells(parts: Parts) -> int:
        return sum(len(text) for text, _ in parts)


def vital_row(vitals: list[Vital], width: int) -> Row:
    """As many groups as fit in their short wordings, the least needed left out; then the most needed ones
    get longer wordings for as long as there is room."""
    kept = list(vitals)
    while len(kept) > 1 and sum(Vital.cells(vital.wordings[0]) + 2 for vital in kept) > width:
        kept.remove(max(kept, key=lambda vital: vital.need))
    chosen = {id(vital): vital.wordings[0] for vital in kept}
    spare = width - sum(Vital.cells(vital.wordings[0]) + 2 for vital in kept)
    for level in range(1, max((len(vital.wordings) for vital in kept), default=1)):
        for vital in sorted(kept, key=lambda vital: vital.need):
            if level >= len(vital.wordings):
                continue
            extra = Vital.cells(vital.wordings[level]) - Vital.cells(chosen[id(vital)])
            if extra <= spare:
                chosen[id(vital)] = vital.wordings[level]
                spare -= extra
    line = Line(width)
    for vital in kept:
        line.put("  " if line.used else " ")
        for text, role in chosen[id(vital)]:
            line.put(text, role)
    return line.row()


def _value(text: SafeText, role: Role = "strong") -> tuple[SafeText, Role]:
    return text, ("dim" if text == UNKNOWN else role)


def _with_unit(text: SafeText, unit: str) -> SafeText:
    return text if text == UNKNOWN else safe(f"{text}{unit}")


def _latency(name: str, figures: Percentiles, target_s: float | None, milli: bool, need: int) -> Vital:
    """``TTFT p50 .5s p99 48.0s▲ slo 2``: the mark says that the promise is not kept."""
    show, unit = (milliseconds, "ms") if milli else (seconds, "s")
    p50, p99 = _with_unit(show(figures.p50), unit), _with_unit(show(figures.p99), unit)
    value = _value(marked(p99, figures.p99, target_s), role_of(figures.p99, target_s, "strong"))
    slo: Parts = ((" slo ", "label"), (safe(_target(target_s, milli)), "dim")) if target_s else ()
    short: Parts = ((safe(f"{name}99 "), "label"), value)
    middle: Parts = ((safe(f"{name} p99 "), "label"), value, *slo)
    long: Parts = ((safe(f"{name} p50 "), "label"), _value(p50), (" p99 ", "label"), value, *slo)
    return Vital((short, middle, long), need)


def _target(target_s: float | None, milli: bool) -> str:
    return f"{target_s * 1000:g}" if target_s and milli else f"{target_s or 0:g}"


def _waiting(waiting: int | None, oldest_s: float | None, target_s: float | None) -> Vital:
    """Marked where the oldest has waited for longer than a first token may take."""
    late = is_over(oldest_s, target_s) and bool(waiting)
    role: Role = "crit" if late else "warn" if waiting else "strong"
    number = count(waiting)
    short: Parts = (("WAIT ", "label"), _value(safe(f"{number}{OVER}") if late else number, role))
    if not waiting or oldest_s is None:
        return Vital((short,), 0)
    return Vital((short, (*short, (" oldest ", "label"), (age(oldest_s), role if late else "warn"))), 0)


def _queue_wait(p99_s: float | None, target_s: float | None) -> Vital:
    value = _value(
        marked(_with_unit(seconds(p99_s), "s"), p99_s, target_s), role_of(p99_s, target_s, "strong")
    )
    return Vital(((("QW99 ", "label"), value), (("QWAIT p99 ", "label"), value)), 3)


def fleet_vitals(picture: Picture) -> list[Vital]:
    totals = picture.totals
    if totals is None:
        return []
    slo = targets(picture)
    return [
        _pair("RUN", count(totals.running), 0),
        _waiting(totals.waiting, totals.queue_wait_s.oldest, slo.ttft_p99_s),
        _queue_wait(totals.queue_wait_s.p99, slo.ttft_p99_s),
        _pair("KV", _with_unit(percent(totals.kv_used_ratio), "%"), 1),
        _tokens(totals.tokens_per_s, 5),
        _latency("TTFT", totals.ttft_s, slo.ttft_p99_s, milli=False, need=1),
        _latency("ITL", totals.itl_s, slo.itl_p99_s, milli=True, need=2),
        _pair("PRE", count(totals.preemptions), 6),
    ]


def replica_vitals(replica: ReplicaPicture, slo: Slo) -> list[Vital]:
    status = replica.status
    running = count(status.running)
    if status.max_running is not None and status.running is not None:
        running = safe(f"{running}/{status.max_running}")
    preemptions: Parts = (("PRE ", "label"), _value(count(status.preemptions_per_min)), ("/m", "label"))
    return [
        _pair("RUN", running, 0),
        _waiting(status.waiting, status.queue_wait_s.oldest, slo.ttft_p99_s),
        _queue_wait(status.queue_wait_s.p99, slo.ttft_p99_s),
        _tokens(status.tokens_per_s, 4),
        _latency("TTFT", status.ttft_s, slo.ttft_p99_s, milli=False, need=1),
        _latency("ITL", status.itl_s, slo.itl_p99_s, milli=True, need=2),
        Vital((preemptions,), 5),
        _pair("hit", _with_unit(percent(status.prefix_hit_ratio), "%"), 6),
    ]


def _tokens(per_s: float | None, need: int) -> Vital:
    return Vital(((_value(rate(per_s)), (" tok/s", "label")),), need)


def _pair(name: str, value: SafeText, need: int) -> Vital:
    return Vital((((safe(f"{name} "), "label"), _value(value)),), need)
