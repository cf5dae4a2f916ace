"""A stretch of time written as a recording of its own, without names unless they are asked for."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import msgspec
from infer_engine.protocol import Envelope, History

from infer_console.past.marks import Mark
from infer_console.past.redact import Redactor
from infer_console.past.snapshot import snapshot_deltas, snapshot_lines
from infer_console.recording import Header, RecordedMark, RecordingWriter
from infer_console.state.fold import ConsoleState
from infer_console.state.picture import Picture, Series
from infer_console.state.series import INTERVAL_S

#: Of all timelines and records of the audit in one file, before they are compressed.
MOST_ASIDE_BYTES = 16 * 1024 * 1024

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Exported:
    messages: int
    bytes: int
    #: The first and the last moment that is in it; None where there is nothing.
    from_at: float | None
    to_at: float | None


@dataclass(frozen=True, slots=True)
class Part:
    """One source of messages, and the time for which it is asked."""

    envelopes: Iterable[Envelope]
    from_at: float
    to_at: float


def export(
    parts: Iterable[Part],
    file: BinaryIO,
    header: Header,
    redactor: Redactor | None,
    asides: Iterable[bytes] = (),
) -> Exported:
    """Write what the parts tell, one after the other, each beginning with all that was known when it begins,
    and then the asides, as far as there is room. Raises OSError of the file, and what the parts' messages
    raise."""
    first: float | None = None
    last: float | None = None
    with RecordingWriter(file, header) as writer:
        for part in parts:
            for at, line in _cut(part):
                writer.write(line if redactor is None else redactor.line(line))
                first = at if first is None else first
                last = at
        told_beside = list(asides)
        if redactor is not None:
            for line in told_beside:  # a record may name in its words whom only a later one names as such
                redactor.aside(line)
        written = 0
        for line in told_beside:
            told = line if redactor is None else redactor.aside(line)
            written += len(told)
            if written > MOST_ASIDE_BYTES:
                break
            writer.aside(told)
        writer.flush()
        return Exported(writer.messages, file.tell(), first, last)


def _cut(part: Part) -> Iterator[tuple[float, bytes]]:
    """Lines of that time. Until it begins messages are folded, and then what is known is told whole: as of
    then, or of when it became known where that was later."""
    state = ConsoleState("")
    whole, begun = True, False
    known_at = part.from_at
    for envelope in part.envelopes:
        if envelope.at > part.to_at:
            break
        if begun:
            yield envelope.at, _encoder.encode(envelope)
            continue
        if envelope.at >= part.from_at and state.is_whole and state.position[1]:
            begun = True
            yield from _known(state, known_at)
            yield envelope.at, _encoder.encode(envelope)
            continue
        if envelope.prev == 0:
            state.opened()
            whole = True
        whole = whole and state.fold(envelope, envelope.at)
        known_at = max(known_at, envelope.at)
    if not begun and state.is_whole and state.position[1]:
        yield from _known(state, known_at)


def _known(state: ConsoleState, at: float) -> Iterator[tuple[float, bytes]]:
    epoch, seq = state.position
    for line in snapshot_lines(snapshot_deltas(state.picture(at, at)), epoch, seq, at):
        yield at, line


def header_for(
    *,
    epoch: str,
    made_at: float,
    picture: Picture | None,
    from_at: float,
    sampled_at: float | None,
    marks: Sequence[Mark],
    redactor: Redactor | None,
) -> Header:
    """``picture`` is that of ``from_at``, whose histories a replay begins with; ``sampled_at`` is when their
    last sample was taken."""

    def said(text: str) -> str:
        return text if redactor is None else redactor.text(text)

    return Header(
        epoch=epoch,
        made_at=made_at,
        simulated=picture.fleet.simulated if picture is not None and picture.fleet is not None else False,
        redacted=redactor is not None,
        marks=[
            RecordedMark(at=mark.at, text=said(mark.text))
            for mark in marks
            if mark.kind == "own" and mark.at >= from_at
        ],
        history=_history(picture, sampled_at or from_at) if picture is not None else None,
        taken=_taken(picture) if picture is not None else {},
    )


def _taken(picture: Picture) -> dict[str, int]:
    histories = {"": picture.history} | {name: each.history for name, each in picture.replicas.items()}
    return {
        name: max(series.taken for series in history.values())
        for name, history in histories.items()
        if history
    }


def _history(picture: Picture, at: float) -> History:
    def plain(series: dict[str, Series]) -> dict[str, list[float | None]]:
        return {key: list(each.values) for key, each in series.items()}

    return History(
        until_at=at,
        step_s=INTERVAL_S,
        sample_s=INTERVAL_S,
        fleet=plain(picture.history),
        replicas={name: plain(each.history) for name, each in picture.replicas.items() if each.history},
    )
