"""Test traffic in rows: what is sent, what it does to users, and how near it is to its guard rails."""

from typing import NamedTuple

from infer_engine.durations import show_duration
from infer_engine.protocol import TrafficFigures, TrafficRails, TrafficStatus

from infer_console.actions.traffic import PROFILES
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import UNKNOWN, count, milliseconds, percent, rate, seconds
from infer_console.view.gauge import bar, progress
from infer_console.view.layout import rule
from infer_console.view.operations import operation_row
from infer_console.view.order import under_way
from infer_console.view.row import Line, Role, Row, Shown
from infer_console.view.traffic import ends_words

_LABEL = 14
_CELL = 13


def sent_section(picture: Picture, traffic: TrafficStatus, width: int, now: float) -> list[Row]:
    """What runs, or ran last, and what became of it."""
    note: Shown = "I: stop it" if traffic.running else "I: inject"
    rows = [rule(width, "TEST TRAFFIC", note=note), _head_row(traffic, picture.at, width)]
    if not traffic.running and traffic.profile is None:
        return rows
    line = Line(width).put(" sent ", "label").put(count(traffic.sent), "strong")
    line.put("  in flight ", "label").put(count(traffic.in_flight))
    if traffic.most_in_flight is not None:
        line.put(safe(f" of {traffic.most_in_flight}"), "dim")
    line.put("  finished ", "label").put(count(traffic.finished), "ok")
    line.put("  failed ", "label").put(count(traffic.failed), "crit" if traffic.failed else "dim")
    line.put("  not sent ", "label").put(count(traffic.not_sent), "warn" if traffic.not_sent else "dim")
    rows.append(line.row())
    if traffic.stopped_because:
        rows.append(
            Line(width).put(" ▲ ended: ", "warn").put(safe(traffic.stopped_because, 300), "warn").row()
        )
    elif traffic.held_back:
        held = " △ held back now: a user waits, or too many test requests do"
        rows.append(Line(width).put(held, "warn").row())
    injections = [each for each in picture.operations if each.kind == "inject"]
    if injections:  # the one that runs, else the last that ran
        shown = max(injections, key=lambda each: (under_way(each), each.started_at))
        rows.append(operation_row(shown, width, now))
    return rows


def _head_row(traffic: TrafficStatus, at: float, width: int) -> Row:
    line = Line(width)
    if traffic.profile is None:
        return line.put(" none runs", "dim").put(", and none ran since the server began", "dim").row()
    if traffic.running:
        line.put(" ● running ", "accent")
    else:
        line.put(" ○ over ", "dim")
    line.put(safe(traffic.profile, 20), "strong").put("  ")
    line.put(_how(traffic), "text")
    line.put("  tier ", "label").put(safe(traffic.tier or "of the profile"))
    if traffic.seed is not None:
        line.put("  seed ", "label").put(safe(str(traffic.seed)))
    began, ends = traffic.started_at, traffic.ends_at
    if traffic.running and began is not None and ends is not None and ends > began:
        left = safe(f" {ends_words(ends - at)} ")
        cells = min(30, line.left - len(left) - 2)
        if cells >= 8:
            done = round(min(1.0, max(0.0, (at - began) / (ends - began))) * cells)
            line.to(width - cells - len(left)).put(left, "dim").put_spans(progress(done, cells, cells))
        elif len(left) <= line.left:
            line.right(left, "dim")
    return line.row()


def _how(traffic: TrafficStatus) -> SafeText:
    if traffic.trace_requests is not None:
        return safe(f"{count(traffic.trace_requests)} recorded requests")
    if traffic.concurrency is not None:
        return safe(f"closed loop, {traffic.concurrency} in flight")
    return safe(f"open loop, {rate(traffic.rate_per_s)}/s")


# --- its effect --------------------------------------------------------------------------------------------


def effect_section(traffic: TrafficStatus, width: int) -> list[Row]:
    """Users before and since, and test requests beside them: p95 over a minute at most."""
    rows = [rule(width, "EFFECT ON USERS", note="p95, a minute at most")]
    before, users, test = traffic.before, traffic.users, traffic.test
    if before is None or users is None:
        return [*rows, Line(width).put(" nothing to compare yet", "dim").row()]
    test = test or TrafficFigures()
    head = Line(width).to(_LABEL)
    for name in ("BEFORE", "SINCE", "CHANGE", "TEST"):
        _cell(head, safe(name), "label")
    rows.append(head.row())
    for label, field, show, unit in (
        (" TTFT", "ttft_p95_s", seconds, "s"),
        (" ITL", "itl_p95_s", milliseconds, "ms"),
        (" QUEUE WAIT", "queue_wait_p95_s", seconds, "s"),
    ):
        old: float | None = getattr(before, field)
        new: float | None = getattr(users, field)
        line = Line(width).put(safe(label), "label").to(_LABEL)
        _cell(line, _with(show(old), unit), "text")
        _cell(line, _with(show(new), unit), "strong")
        _cell(line, *_change(old, new))
        _cell(line, _with(show(getattr(test, field)), unit), "dim")
        rows.append(line.row())
    kv = Line(width).put(" KV USED", "label").to(_LABEL)
    old_kv, new_kv = before.kv_used_ratio, users.kv_used_ratio
    _cell(kv, _with(percent(old_kv), "%"), "text")
    _cell(kv, _with(percent(new_kv), "%"), "strong")
    points = None if old_kv is None or new_kv is None else round((new_kv - old_kv) * 100)
    _cell(kv, UNKNOWN if points is None else safe(f"{points:+d} pts"), "text" if points else "dim")
    rows.append(kv.row())
    requests = Line(width).put(" REQUESTS", "label").to(_LABEL)
    for number in (before.requests, users.requests):
        _cell(requests, count(number), "dim")
    _cell(requests, safe(""), "dim")
    _cell(requests, count(test.requests), "dim")
    rows.append(requests.row())
    return rows


def _cell(line: Line, text: SafeText, role: Role) -> None:
    line.to(line.used + max(0, _CELL - len(text))).put(text, role)


def _with(text: SafeText, unit: str) -> SafeText:
    return text if text == UNKNOWN else safe(f"{text} {unit}")


def _change(old: float | None, new: float | None) -> tuple[SafeText, Role]:
    if old is None or new is None or old <= 0:
        return UNKNOWN, "dim"
    if new >= 2 * old:
        return safe(f"×{new / old:.1f} ▲"), "warn"
    return safe(f"{(new / old - 1) * 100:+.0f}%"), "text"


# --- its guard rails ---------------------------------------------------------------------------------------


class _Rail(NamedTuple):
    what: SafeText
    now: SafeText
    #: How near: 1 is there. None where it is not known.
    share: float | None


def rails_section(traffic: TrafficStatus, width: int) -> list[Row]:
    rows = [rule(width, "GUARD RAILS", note="it ends by itself at the first")]
    rails = traffic.rails
    if rails is None:
        return [*rows, Line(width).put(" this server does not tell them", "dim").row()]
    rows += [_rail_row(rail, width) for rail in _rails(traffic, rails)]
    held = (
        f" none is sent while a user has waited {rails.hold_wait_s:g} s, or "
        f"{rails.hold_test_waiting} of it wait per replica"
    )
    caps = (
        f" at most {rails.max_rate_per_s:g}/s for {show_duration(rails.max_duration_s)}; lowest priority; "
        "in no figure of users"
    )
    return [*rows, *(Line(width).put(safe(text), "dim").row() for text in (held, caps))]


def _rails(traffic: TrafficStatus, rails: TrafficRails) -> list[_Rail]:
    """Nothing is near while none runs."""
    running, users, before = traffic.running, traffic.users, traffic.before
    wait_s = traffic.user_wait_s if running else None
    waited = _Rail(
        safe(f"a user waits for {rails.stop_wait_s:g} s"),
        UNKNOWN if not running else safe("none waits") if wait_s is None else safe(f"{wait_s:.1f} s"),
        (wait_s or 0.0) / rails.stop_wait_s if running else None,
    )
    now_s = users.ttft_p95_s if running and users is not None else None
    base_s = before.ttft_p95_s if before is not None else None
    most_s = None if base_s is None else max(rails.quick_ttft_s, rails.stop_ttft_factor * base_s)
    goal = "their TTFT p95 doubles" if rails.stop_ttft_factor == 2 else "their TTFT p95 grows"
    ttft = _Rail(
        safe(f"{goal} (to {most_s:.{2 if most_s < 10 else 0}f} s)" if most_s is not None else goal),
        UNKNOWN if now_s is None else safe(f"{now_s:.2f} s"),
        None if now_s is None or not most_s else now_s / most_s,
    )
    kv = users.kv_used_ratio if running and users is not None else None
    alone = running and traffic.users_live is False
    shown = UNKNOWN if kv is None else safe(f"{percent(kv)} %{', no user' if alone else ''}")
    return [
        waited,
        ttft,
        _Rail(
            safe(f"{rails.stop_kv_ratio * 100:.0f} % of the KV is used"),
            shown,
            None if kv is None or alone else kv / rails.stop_kv_ratio,
        ),
    ]


def _rail_row(rail: _Rail, width: int) -> Row:
    line = Line(width).put(" ").put(rail.what).to(36)
    line.put(rail.now, "strong" if rail.share is not None else "dim").to(50)
    cells = min(24, line.left - 5)
    if rail.share is not None and cells >= 4:
        role: Role = "crit" if rail.share >= 1 else "warn" if rail.share >= 0.7 else "used"
        line.put_spans(bar(rail.share, 1.0, cells, role)).to(50 + cells)
        line.put(" │", "mark")
        if rail.share >= 0.7:
            line.put(" △", "warn")
    return line.row()


def profile_rows(width: int, height: int) -> list[Row]:
    """What may be injected, and what each asks."""
    if height < 2:
        return []
    rows = [rule(width, "PROFILES", note="a recorded trace: infer-console inject --trace FILE")]
    for name, asks in PROFILES.items():
        rows.append(Line(width).put(" ").put(safe(name), "accent").to(18).put(safe(asks), "dim").row())
    return rows[:height]
