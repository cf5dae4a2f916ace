"""What the gateway and the test traffic do."""

import textwrap

from infer_engine.protocol import GatewayStatus, TrafficStatus

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import age, count, milliseconds, rate, short_count, size
from infer_console.view.layout import rule
from infer_console.view.row import Line, Role, Row, Shown
from infer_console.view.watched import is_watched

_LABEL_CELLS = 10
FINISH_ROLES: dict[str, Role] = {"stop": "text", "length": "text", "cancelled": "warn", "error": "crit"}
#: A loop that lags more than this delays every answer.
LAGS_S = 0.1


def gateway_words(picture: Picture) -> list[tuple[SafeText, Role]]:
    """Connections, loop lag and what waits there, the most important first."""
    fleet = picture.fleet
    gateway = fleet.gateway if fleet is not None else GatewayStatus()
    most = f"/{count(gateway.max_connections)}" if gateway.max_connections is not None else ""
    lag_s = gateway.loop_lag_p99_s if gateway.loop_lag_p99_s is not None else gateway.loop_lag_s
    words: list[tuple[SafeText, Role]] = [
        (safe(f"{count(gateway.connections)}{most} conns"), "text"),
        (safe(f"loop p99 {milliseconds(lag_s)}ms"), "warn" if (lag_s or 0) > LAGS_S else "text"),
    ]
    if gateway.tokenizer_queue is not None:
        waits = gateway.tokenizer_queue > 0
        words.append((safe(f"tokenizer q {count(gateway.tokenizer_queue)}"), "warn" if waits else "text"))
    if picture.held:
        words.append((safe(f"held {count(len(picture.held))}"), "warn"))
    if gateway.refused_connections:
        words.append((safe(f"turned away {count(gateway.refused_connections)}"), "warn"))
    refused = sum(use.refused_per_min or 0 for use in picture.totals.tenants) if picture.totals else 0
    if refused:
        words.append((safe(f"429 {count(refused)}/m"), "warn"))
    return words


def ended_words(picture: Picture) -> list[tuple[SafeText, Role]]:
    """How requests ended since the server's start."""
    finished = picture.totals.finished if picture.totals is not None else {}
    return [
        (safe(f"{name} {short_count(number)}"), FINISH_ROLES.get(name, "text") if number else "dim")
        for name, number in finished.items()
    ]


def gateway_row(picture: Picture, width: int) -> Row:
    """All that fits, in one row."""
    line = Line(width).put(" GATEWAY ", "label")
    _put_words(line, gateway_words(picture))
    ended = ended_words(picture)
    if ended and sum(len(text) + 2 for text, _ in ended) + 10 <= line.left:
        line.put("   ENDED ", "label")
        _put_words(line, ended)
    return line.row()


def _put_words(line: Line, words: list[tuple[SafeText, Role]]) -> None:
    for index, (text, role) in enumerate(words):
        if len(text) + 2 > line.left:
            break
        line.put("  " if index else "").put(text, role)


def traffic_section(picture: Picture, width: int, height: int) -> list[Row]:
    """Gateway, ends, test traffic and where to reach it all, with a title."""
    return [rule(width, "TRAFFIC"), *traffic_rows(picture, width)][: max(0, height)]


def traffic_rows(picture: Picture, width: int) -> list[Row]:
    fleet = picture.fleet
    if fleet is None:
        return []
    gateway = fleet.gateway
    rows = _told(" gateway  ", gateway.url or "–", "text", width)
    second = Line(width).to(_LABEL_CELLS)
    _put_words(second, gateway_words(picture))
    rows.append(second.row())
    if gateway.rss_bytes is not None:
        memory = Line(width).put(" memory   ", "label").put(size(gateway.rss_bytes))
        if gateway.connection_bytes is not None:
            memory.put(" (≈ ", "dim").put(size(gateway.connection_bytes)).put(" a connection)", "dim")
        rows.append(memory.row())
    third = Line(width).put(" ended    ", "label")
    _put_words(third, ended_words(picture) or [(safe("–"), "dim")])
    rows.append(third.row())
    rows += test_rows(picture, width)
    return rows + _path(" control  ", picture.link.url, width)


def has_test(picture: Picture) -> bool:
    """Whether test traffic runs, or what became of it is worth a row."""
    traffic = picture.fleet.traffic if picture.fleet is not None else TrafficStatus()
    return traffic.running or bool(traffic.stopped_because)


def test_rows(picture: Picture, width: int) -> list[Row]:
    """The test traffic in a row or a few."""
    traffic = picture.fleet.traffic if picture.fleet is not None else TrafficStatus()
    line = Line(width).put(" test     ", "label")
    if traffic.running:
        line.put(safe(f"{traffic.profile} "), "accent").put(load_words(traffic), "text").put("  ")
        if traffic.ends_at is not None:
            line.put(ends_words(traffic.ends_at - picture.at), "dim").put("   I: stop", "dim")
    elif traffic.stopped_because:
        rows = _told(" test     ", f"stopped: {traffic.stopped_because}", "warn", width)
        return [*rows, *_counted(traffic, Line(width).to(_LABEL_CELLS - 2))]
    elif traffic.sent:
        line.put("over", "dim")
    elif is_watched(picture):
        return []
    else:
        return [line.put("none   I: inject", "dim").row()]
    if width < 90:
        return [line.row(), *_counted(traffic, Line(width).to(_LABEL_CELLS - 2))]
    return _counted(traffic, line)


def _counted(traffic: TrafficStatus, line: Line) -> list[Row]:
    """What became of the test requests, behind what stands in ``line``; what is too long has its own row."""
    words: list[tuple[SafeText, Role]] = [
        (
            safe(f"sent {traffic.sent:,}  in flight {traffic.in_flight:,}  finished {traffic.finished:,}"),
            "text",
        )
    ]
    if traffic.failed:
        words.append((safe(f"failed {traffic.failed}"), "crit"))
    if traffic.not_sent:
        words.append((safe(f"not sent {traffic.not_sent}"), "warn"))
    lines = [line]
    for text, role in words:
        if len(text) + 2 > lines[-1].left:
            lines.append(Line(line.width).to(_LABEL_CELLS - 2))
        lines[-1].put("  ").put(text, role)
    return [each.row() for each in lines]


def _told(label: Shown, text: str, role: Role, width: int) -> list[Row]:
    """A label and a text over as many rows as it takes."""
    pieces = textwrap.wrap(safe(text, 400), max(8, width - _LABEL_CELLS), break_on_hyphens=False)
    return [
        Line(width).put(label if index == 0 else "", "label").to(_LABEL_CELLS).put(safe(piece), role).row()
        for index, piece in enumerate(pieces[:4])
    ]


def _path(label: Shown, url: str, width: int) -> list[Row]:
    """In one row: of a path that is too long the end tells more than the beginning."""
    room = max(8, width - _LABEL_CELLS)
    shown = safe(url, 400)
    if len(shown) > room:
        shown = safe("…" + shown[1 - room :])
    return [Line(width).put(label, "label").put(shown).row()]


def traffic_short(picture: Picture) -> SafeText:
    if picture.fleet is None or not picture.fleet.traffic.running:
        return safe("")
    traffic = picture.fleet.traffic
    left_s = None if traffic.ends_at is None else traffic.ends_at - picture.at
    left = "– left" if left_s is None else f"{age(left_s)} left" if left_s > 0 else ends_words(left_s)
    return safe(f"test {traffic.profile} {load_words(traffic)}, {left} ")


def ends_words(left_s: float) -> SafeText:
    """When the last test request is sent: what is in flight then still ends."""
    return safe(f"ends in {age(left_s)}" if left_s > 0 else "its time is over")


def load_words(traffic: TrafficStatus) -> SafeText:
    """``5/s``; of a closed loop ``120 at once``."""
    if traffic.concurrency is not None:
        return safe(f"{traffic.concurrency} at once")
    return safe(f"{rate(traffic.rate_per_s)}/s")
