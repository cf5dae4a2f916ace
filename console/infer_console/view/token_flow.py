"""A stream's tokens in the order they came: one sign for each, or their text, with what stood between them.

A sign says how long the token was waited for, against what is usual for its stream, so a stall is seen
without a word of the text. What happened to the request has a row of its own where it happened.
"""

from collections.abc import Sequence
from typing import NamedTuple

from infer_engine.protocol import Event

from infer_console.state.picture import Picture, StreamPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.terminal.wrap import wrap
from infer_console.view.format import age, short_count
from infer_console.view.row import Line, Role, Row, Shown

#: A gap is slow from so many times the usual one on, very slow, and a stall; no gap below a quarter of a
#: second is one.
SLOW, VERY_SLOW, STALL = 2.0, 4.0, 8.0
LEAST_STALL_S = 0.25
#: The latest gaps by which the usual one is told.
LOOKED_AT = 256
#: From how long on a stall's length is written beside its sign.
TOLD_FROM_S = 0.95

SIGNS: tuple[tuple[Shown, Role, Shown], ...] = (
    ("·", "dim", "usual gap"),
    ("▂", "text", "2× and more"),
    ("▅", "warn", "4× and more"),
    ("█", "crit", "stall"),
)


class Mark(NamedTuple):
    """What happened before the token at this place among those whose times are known."""

    place: int
    text: SafeText
    role: Role


def usual_s(stream: StreamPicture) -> float | None:
    """The median of the latest gaps."""
    known = sorted(gap for gap in stream.gaps_s[-LOOKED_AT:] if gap is not None)
    return known[len(known) // 2] if known else None


def stall_s(stream: StreamPicture) -> float:
    """From how long on a gap of this stream is a stall."""
    return max(LEAST_STALL_S, STALL * (usual_s(stream) or 0.0))


def level(gap_s: float | None, usual: float | None, stall: float) -> int:
    """Which sign: 0 where nothing is known of the gap."""
    if gap_s is None or usual is None:
        return 0
    if gap_s >= stall:
        return 3
    return 2 if gap_s > VERY_SLOW * usual else 1 if gap_s > SLOW * usual else 0


def marks(picture: Picture, stream: StreamPicture) -> list[Mark]:
    """Preemptions, moves and admissions of the request, each before the first token that came after it."""
    found: list[Mark] = []
    was_out = False
    for event in picture.events:
        if event.request != stream.request or event.kind not in ("preempt", "move", "admit"):
            continue
        place = next((at for at, came in enumerate(stream.ats) if came > event.at), len(stream.ats))
        if event.kind == "admit" and not was_out:
            continue  # the first admission is before every token
        was_out = event.kind != "admit"
        if place or stream.tokens == len(stream.gaps_s):
            found.append(Mark(place, *_words(event)))
    return found


def _words(event: Event) -> tuple[SafeText, Role]:
    redo = f", {short_count(event.tokens)} tok to redo" if event.tokens is not None else ""
    match event.kind:
        case "preempt":
            return safe(f"preempted ({safe(event.reason or '–', 20)}){redo}"), "preempt"
        case "move":
            why = f"({safe(event.reason or '–', 20)}){redo}"
            if event.to_replica is None:
                return safe(f"without a replica {why}"), "move"
            verb = "resumed at" if event.to_replica == event.replica else "moved to"
            return safe(f"{verb} {safe_identifier(event.to_replica)} {why}"), "move"
        case _:
            waited = f", waited {age(event.wait_s)}" if event.wait_s is not None else ""
            return safe(f"admitted again{waited}"), "admit"


def shape_rows(picture: Picture, stream: StreamPicture, width: int, height: int) -> list[Row]:
    """The last ``height`` rows of signs. They begin at a multiple of the width, so that a row stays as it is
    while the next one grows."""
    if height <= 0:
        return []
    if not stream.gaps_s:
        return [Line(width).put(" when its tokens came is not known (any more)", "dim").row()]
    total = len(stream.gaps_s)
    first = max(0, (total - width * height) // width * width)
    stops = [mark for mark in marks(picture, stream) if mark.place >= first]
    rows: list[Row] = []
    start = first
    for mark in [*stops, None]:
        stop = mark.place if mark is not None else total
        rows += _sign_rows(stream, start, stop, width)
        if mark is not None:
            rows.append(_mark_row(mark, width))
        start = stop
    return rows[-height:]


def _sign_rows(stream: StreamPicture, start: int, stop: int, width: int) -> list[Row]:
    usual, stall = usual_s(stream), stall_s(stream)
    rows: list[Row] = []
    line = Line(width)
    for place in range(start, stop):
        gap_s = stream.gaps_s[place]
        sign, role, _ = SIGNS[level(gap_s, usual, stall)]
        told = gap_s is not None and gap_s >= max(stall, TOLD_FROM_S)
        text = safe(f"{sign}{age(gap_s)} ") if told else sign
        if len(text) > line.left and line.used:
            rows.append(line.row())
            line = Line(width)
        line.put(text, role)
    return [*rows, line.row()] if line.used else rows


def _mark_row(mark: Mark, width: int) -> Row:
    return Line(width).put("┄┄ ", "rule").put(mark.text, mark.role).put(" ").to(width, "┄", "rule").row()


def text_rows(picture: Picture, stream: StreamPicture, width: int, height: int) -> list[Row]:
    """The signs of the latest tokens in one row, then the end of the text. A row stands between two tokens
    where the stream stood still or something happened."""
    if height <= 0:
        return []
    strip = _strip(stream, width) if height >= 4 and stream.gaps_s else []
    room = height - len(strip)
    blocks: list[list[Row]] = []
    stop = len(stream.text)
    for place, mark in reversed(_breaks(picture, stream)):
        at = _offset(stream, place)
        if at is None:
            break
        piece = stream.text[at:stop]
        blocks.append([_mark_row(mark, width), *_wrapped(piece, width, room)])
        stop = at
        if sum(map(len, blocks)) >= room:
            break
    blocks.append(_wrapped(stream.text[:stop], width, room))
    flat = [row for block in reversed(blocks) for row in block]
    return [*strip, *flat[-room:]]


def _strip(stream: StreamPicture, width: int) -> list[Row]:
    usual, stall = usual_s(stream), stall_s(stream)
    line = Line(width)
    for gap_s in stream.gaps_s[-width:]:
        sign, role, _ = SIGNS[level(gap_s, usual, stall)]
        line.put(sign, role)
    return [line.row()]


def _breaks(picture: Picture, stream: StreamPicture) -> Sequence[tuple[int, Mark]]:
    """Stalls, and what happened, by the place of the token after it."""
    usual, stall = usual_s(stream), stall_s(stream)
    found = [(mark.place, mark) for mark in marks(picture, stream)]
    for place, gap_s in enumerate(stream.gaps_s):
        if gap_s is not None and level(gap_s, usual, stall) == 3:
            found.append((place, Mark(place, safe(f"stood still {age(gap_s)}"), "crit")))
    return sorted(found, key=lambda item: item[0])


def _offset(stream: StreamPicture, place: int) -> int | None:
    """Where in the text the token at ``place`` begins; None where that is not kept."""
    if len(stream.characters) != len(stream.gaps_s):
        return None
    at = len(stream.text) - sum(stream.characters[place:])
    return at if at >= 0 else None


def _wrapped(text: str, width: int, height: int) -> list[Row]:
    if not text:
        return []
    return [Line(width).put_pane(row).row() for row in wrap(text, width, max(1, height))]
