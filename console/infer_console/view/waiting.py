"""Who waits and why; and what to type when nothing happens at all."""

import textwrap

from infer_engine.protocol import Totals

from infer_console.diagnosis.unready import none_answers, of_upstreams
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import count
from infer_console.view.gauge import bar
from infer_console.view.layout import rule
from infer_console.view.row import Line, Row, Shown
from infer_console.view.traffic import traffic_short
from infer_console.view.waiters import waiter_row, waiter_words, waiters
from infer_console.view.watched import is_watched

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
    "capacity": "vLLM has no room for it, in blocks or in slots",
    "deferred": "vLLM put it off: it waits for something else",
}
#: In one line with the others.
SHORT = {"token_budget": "budget", "long_prefill": "long"}


def reasons(totals: Totals | None) -> list[tuple[str, int]]:
    """Waiting reasons with their counts, most first."""
    known = totals.waiting_reasons if totals is not None else {}
    return sorted(
        ((name, number) for name, number in known.items() if number), key=lambda item: (-item[1], item[0])
    )


def is_shed(picture: Picture) -> bool:
    """Whether an operator has the batch tier pause."""
    return picture.fleet is not None and picture.fleet.spec is not None and picture.fleet.spec.shed


def seen_traffic(picture: Picture) -> bool:
    """Whether any request was ever seen."""
    totals = picture.totals
    if totals is not None and (totals.running or totals.waiting or any(totals.finished.values())):
        return True
    if picture.fleet is not None and picture.fleet.traffic.sent:
        return True
    return any(event.kind in ("admit", "finish", "reject") for event in picture.events)


def _watched_rows(picture: Picture, width: int, height: int) -> list[Row]:
    """Nothing happens at a server that is only watched; it takes no test traffic from here."""
    urls = [each.status.watched_url for each in picture.replicas.values() if each.status.watched_url]
    rows = [Line(width).put(" no traffic yet", "strong").put(": it shows when somebody uses it").row()]
    if urls:
        words = safe(f"clients send to {urls[0].partition('+')[2]}", 200)
        rows.append(Line(width).put("   ").put(words, "dim").row())
    return rows[: max(0, height)]


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


def hint_rows(picture: Picture, width: int, height: int, past: bool = False) -> list[Row]:
    """What to do when no traffic was seen yet; of what is past, that there was none."""
    if past:
        line = Line(width).put(" no traffic yet", "strong").put(" at the moment that is shown", "dim")
        return [line.row()][: max(0, height)]
    if is_watched(picture):
        return _watched_rows(picture, width, height)
    hint = Line(width).put(" no traffic yet", "strong").put(": ")
    if not picture.read_only:
        hint.put("press ").put("I", "act").put(" to inject a chat profile, or ")
    rows = [hint.put("send a request:").row()]
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
    command = safe("infer-console --connect " + picture.link.url, 400)
    pieces = textwrap.wrap(command, max(8, width - 10), break_on_hyphens=False)
    for index, piece in enumerate(pieces[:4]):
        label = " console: " if index == 0 else ""
        rows.append(Line(width).put(label, "label").to(10).put(safe(piece), "dim").row())
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
        line.put(safe(f"{SHORT.get(name, name)} "), "text").put(count(number), "warn").put("  ")
    right = traffic_short(picture) or _gateway_short(picture)
    if len(right) < line.left:
        line.right(right, "accent" if traffic_short(picture) else "dim")
    return line.row()


def _gateway_short(picture: Picture) -> SafeText:
    """Connections at the gateway, as far as there is room."""
    gateway = picture.fleet.gateway if picture.fleet is not None else None
    if gateway is None or gateway.connections is None:
        return safe("")
    most = f"/{gateway.max_connections}" if gateway.max_connections is not None else ""
    refused = sum(use.refused_per_min or 0 for use in picture.totals.tenants) if picture.totals else 0
    return safe(f"gw {gateway.connections}{most}  429 {refused}/m ")


def waiting_section(picture: Picture, width: int, height: int) -> list[Row]:
    """The reasons with bars, the most frequent first."""
    if height <= 0:
        return []
    totals = picture.totals
    waiting = totals.waiting if totals is not None else None
    told = sum(number for _, number in reasons(totals))
    # Two clocks: who waits is of now, why is of each replica's last step.
    note = safe(f"reasons of the last steps: {count(told)}") if told not in (0, waiting) else safe("")
    if not note and waiters(picture):
        note = safe("who waits longest")
    return [rule(width, "WAITING", count(waiting), note), *_reason_rows(picture, width, height - 1)]


def hint_section(picture: Picture, width: int, height: int, past: bool = False) -> list[Row]:
    """In the place of the reasons where nothing was seen yet."""
    return [rule(width, "TRAFFIC"), *hint_rows(picture, width, height - 1, past)][: max(0, height)]


def _reason_rows(picture: Picture, width: int, height: int) -> list[Row]:
    parts = reasons(picture.totals)
    if not parts:
        waits = picture.totals is not None and picture.totals.waiting
        foreign = any(each.status.foreign is not None for each in picture.replicas.values())
        waited = " why is not told" if foreign else " no reason is known yet; the next step names one"
        text = waited if waits else " nobody waits"
        named = [waiter_row(row, width) for row in waiters(picture)] if waits else []
        return named[:height] or [Line(width).put(text, "dim").row()]
    most = max(number for _, number in parts)
    bar_cells = 14 if width >= 70 else 8
    rows: list[Row] = []
    longest, named = waiters(picture), set[str]()
    shown = parts if len(parts) <= height else parts[: max(0, height - 1)]
    for name, number in shown:
        line = Line(width).put(" ").put(safe(name, 13), "text").to(14)
        amount = count(number)
        line.to(19 - len(amount)).put(amount, "warn").put(" ")
        line.put_spans(bar(number, most, bar_cells, "warn")).to(21 + bar_cells)
        first = next((row for row in longest if row.waiting_reason == name), None)
        if first is None:
            line.put(_means(name, picture), "dim")
        else:
            line.put(waiter_words(first, line.left))
            named.add(first.id)
        rows.append(line.row())
    if len(shown) < len(parts):
        rest = sum(number for _, number in parts[len(shown) :])
        rows.append(Line(width).put(safe(f" {len(parts) - len(shown)} more reasons: {rest}"), "dim").row())
    others = (row for row in longest if row.id not in named)
    rows += [waiter_row(row, width) for row in others][: max(0, height - len(rows))]
    return rows


def _means(reason: str, picture: Picture) -> Shown:
    """Nothing loads here where the servers are run by others; what is shed does not give way, it stands."""
    if reason == "tier" and is_shed(picture):
        return "batch is shed"
    if reason == "loading" and of_upstreams(picture):
        return "no upstream answers: start them" if none_answers(picture) else "no upstream is ready"
    return REASONS.get(reason, "")
