"""Who waits and why, what the gateway and the test traffic do; and what to type when nothing happens at
all."""

import textwrap

from infer_engine.protocol import Totals, TrafficStatus

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import age, count, milliseconds, rate, short_count, size
from infer_console.view.gauge import bar
from infer_console.view.layout import rule
from infer_console.view.row import Line, Role, Row, Shown, beside

#: What each waiting reason means, in words.
REASONS: dict[str, Shown] = {
    "kv": "not enough free KV blocks",
    "headroom": "free, but above the admit mark",
    "token_budget": "the step's tokens are spent",
    "slots": "the batch is full (max running)",
    "behind": "would fit; a larger one is ahead",
    "tier": "batch gives way to interactive",
    "tenant": "the tenant is at its limit",
    "long_prefill": "other long prompts prefill first",
    "draining": "its replica is draining",
    "loading": "no replica is loaded yet",
}
#: The width from which the traffic stands beside the reasons.
TWO_FROM = 110
_LABEL_CELLS = 10
FINISH_ROLES: dict[str, Role] = {"stop": "text", "length": "text", "cancelled": "warn", "error": "crit"}


def reasons(totals: Totals | None) -> list[tuple[str, int]]:
    """Waiting reasons with their counts, most first."""
    known = totals.waiting_reasons if totals is not None else {}
    return sorted(
        ((name, number) for name, number in known.items() if number), key=lambda item: (-item[1], item[0])
    )


def seen_traffic(picture: Picture) -> bool:
    """Whether any request was ever seen."""
    totals = picture.totals
    if totals is not None and (totals.running or totals.waiting or any(totals.finished.values())):
        return True
    if picture.fleet is not None and picture.fleet.traffic.sent:
        return True
    return any(event.kind in ("admit", "finish", "reject") for event in picture.events)


def curl_words(picture: Picture) -> list[tuple[SafeText, Shown]]:
    """A command that sends a request to this fleet's gateway, in pieces with what continues the line after
    each."""
    fleet = picture.fleet
    url = (fleet.gateway.url if fleet is not None else None) or "http://127.0.0.1:8000"
    model = fleet.model if fleet is not None else "default"
    return [
        (safe(f"curl {url}/v1/chat/completions"), " \\"),
        (safe("-H 'content-type: application/json'"), " \\"),
        # Inside the quotes a line break is white space of JSON.
        (safe(f'-d \'{{"model":"{model}",'), ""),
        (safe('"messages":[{"role":"user","content":"hello"}]}\''), ""),
    ]


def hint_rows(picture: Picture, width: int, height: int) -> list[Row]:
    """What to do when no traffic was seen yet."""
    hint = Line(width).put(" no traffic yet", "strong").put(": press ").put("I", "act")
    rows = [hint.put(" to inject a chat profile, or send a request:").row()]
    words = curl_words(picture)
    line = Line(width).put("   ")
    for index, (word, continued) in enumerate(words):
        line.put(word, "accent")
        following = words[index + 1][0] if index + 1 < len(words) else None
        if following is not None and len(following) + 4 <= line.left:
            line.put(" ")
            continue
        rows.append(line.put(continued if following is not None else "", "dim").row())
        line = Line(width).put("     ")
    rows += _told(" console: ", "infer-console --connect " + picture.link.url, "dim", width)
    return rows[: max(0, height)]


def waiting_line(picture: Picture, width: int) -> Row:
    """All reasons in one line, for small terminals."""
    totals = picture.totals
    line = Line(width).put(" WAIT ", "label")
    parts = reasons(totals)
    if totals is None or totals.waiting is None:
        line.put("–", "dim")
    elif not parts:
        line.put(count(totals.waiting), "warn" if totals.waiting else "dim")
    for name, number in parts:
        line.put(safe(f"{name} "), "text").put(count(number), "warn").put("  ")
    traffic = _traffic_short(picture)
    if traffic:
        line.right(traffic, "accent")
    return line.row()


def waiting_height(picture: Picture, width: int) -> int:
    """Rows in which the section tells all."""
    if not seen_traffic(picture):
        return 1 + len(hint_rows(picture, width, 20))
    beside_it = len(_traffic_rows(picture, width - width * 56 // 100 - 1)) if width >= TWO_FROM else 0
    return 1 + max(len(reasons(picture.totals)), beside_it)


def waiting_section(picture: Picture, width: int, height: int) -> list[Row]:
    """Reasons with bars; beside them, where there is room, gateway, test traffic and how requests ended."""
    if height <= 0:
        return []
    totals = picture.totals
    waiting = totals.waiting if totals is not None else None
    if not seen_traffic(picture):
        return [rule(width, "TRAFFIC"), *hint_rows(picture, width, height - 1)]
    two = width >= TWO_FROM
    left_width = width * 56 // 100 if two else width
    left = [rule(left_width, "WAITING", count(waiting))]
    left += _reason_rows(picture, left_width, height - 1)
    if not two:
        return left[:height]
    right_width = width - left_width - 1
    right = [rule(right_width, "TRAFFIC"), *_traffic_rows(picture, right_width)]
    return beside(left[:height], right[:height], left_width, width, " ")


def _reason_rows(picture: Picture, width: int, height: int) -> list[Row]:
    parts = reasons(picture.totals)
    if not parts:
        waits = picture.totals is not None and picture.totals.waiting
        text = " no reason is known yet; the next step names one" if waits else " nobody waits"
        return [Line(width).put(text, "dim").row()]
    most = max(number for _, number in parts)
    rows: list[Row] = []
    shown = parts if len(parts) <= height else parts[: max(0, height - 1)]
    for name, number in shown:
        line = Line(width).put(" ").put(safe(name, 13), "text").to(14)
        amount = count(number)
        line.to(19 - len(amount)).put(amount, "warn").put(" ")
        line.put_spans(bar(number, most, 14, "warn")).to(35)
        rows.append(line.put(REASONS.get(name, ""), "dim").row())
    if len(shown) < len(parts):
        rest = sum(number for _, number in parts[len(shown) :])
        rows.append(Line(width).put(safe(f" {len(parts) - len(shown)} more reasons: {rest}"), "dim").row())
    return rows


def _traffic_rows(picture: Picture, width: int) -> list[Row]:
    fleet = picture.fleet
    if fleet is None:
        return []
    gateway = fleet.gateway
    first = Line(width).put(" gateway  ", "label").put(safe(gateway.url or "–", 40))
    second = (
        Line(width)
        .put("          ")
        .put(count(gateway.connections))
        .put(" connections   loop lag ", "dim")
        .put(milliseconds(gateway.loop_lag_s))
        .put(" ms", "dim")
    )
    lines = [second]
    if gateway.rss_bytes is not None:
        memory = f"memory {size(gateway.rss_bytes)}"
        if gateway.connection_bytes is not None:
            memory += f" (≈ {size(gateway.connection_bytes)} a connection)"
        _beside(lines, safe(memory), "dim", width)
    if gateway.refused_connections:
        _beside(lines, safe(f"turned away {gateway.refused_connections}"), "warn", width)
    if picture.held:
        _beside(lines, safe(f"held {len(picture.held)}"), "warn", width)
    third = Line(width).put(" ended    ", "label")
    finished = picture.totals.finished if picture.totals is not None else {}
    for name, number in finished.items():
        third.put(safe(f"{name} "), "dim").put(
            short_count(number), FINISH_ROLES.get(name, "text") if number else "dim"
        ).put(" ")
    if not finished:
        third.put("–", "dim")
    rows = [first.row(), *(line.row() for line in lines), third.row()]
    rows += _injected_rows(fleet.traffic, picture.at, width)
    return rows + _told(" control  ", picture.link.url, "text", width)


def _injected_rows(traffic: TrafficStatus, now: float, width: int) -> list[Row]:
    line = Line(width).put(" test     ", "label")
    if traffic.running:
        line.put(safe(f"{traffic.profile} "), "accent").put(rate(traffic.rate_per_s)).put("/s  ", "dim")
        if traffic.ends_at is not None:
            line.put("ends in ", "dim").put(age(traffic.ends_at - now)).put("   I: stop", "dim")
    elif traffic.stopped_because:
        rows = _told(" test     ", f"stopped: {traffic.stopped_because}", "warn", width)
        return [*rows, *_counted(traffic, width)]
    elif traffic.sent:
        line.put("over", "dim")
    else:
        return [line.put("none   I: inject", "dim").row()]
    return [line.row(), *_counted(traffic, width)]


def _counted(traffic: TrafficStatus, width: int) -> list[Row]:
    """What became of the test requests; what went wrong has its own row where that is too long for one."""
    lines = [Line(width).to(_LABEL_CELLS)]
    lines[0].put(
        safe(f"sent {traffic.sent}  in flight {traffic.in_flight}  finished {traffic.finished}"), "text"
    )
    wrong: list[tuple[SafeText, Role]] = []
    if traffic.failed:
        wrong.append((safe(f"failed {traffic.failed}"), "crit"))
    if traffic.not_sent:
        wrong.append((safe(f"not sent {traffic.not_sent}"), "warn"))
    for text, role in wrong:
        _beside(lines, text, role, width)
    return [line.row() for line in lines]


def _beside(lines: list[Line], text: SafeText, role: Role, width: int) -> None:
    """Behind what stands there, or in a row of its own where it would be cut."""
    if len(text) + 2 > lines[-1].left:
        lines.append(Line(width).to(_LABEL_CELLS).put(text, role))
    else:
        lines[-1].put("  ").put(text, role)


def _told(label: Shown, text: str, role: Role, width: int) -> list[Row]:
    """A label and a text over as many rows as it takes."""
    pieces = textwrap.wrap(safe(text, 400), max(8, width - _LABEL_CELLS), break_on_hyphens=False)
    return [
        Line(width).put(label if index == 0 else "", "label").to(_LABEL_CELLS).put(safe(piece), role).row()
        for index, piece in enumerate(pieces[:4])
    ]


def _traffic_short(picture: Picture) -> SafeText:
    if picture.fleet is None or not picture.fleet.traffic.running:
        return safe("")
    traffic = picture.fleet.traffic
    left = age(traffic.ends_at - picture.at) if traffic.ends_at is not None else "–"
    return safe(f"test {traffic.profile} {rate(traffic.rate_per_s)}/s, {left} left ")
