"""What was measured, as one JSON document that grows part by part."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

VERSION = 1


class Result(Struct, frozen=True, kw_only=True):
    """One figure. ``value`` is the median of ``samples``; ``ratio`` is it over that of ``against``;
    ``wanted`` bounds the ratio where there is one, else the value; unknown is None."""

    measure: str
    value: float | None
    unit: str
    against: str | None = None
    ratio: float | None = None
    wanted: float | None = None
    met: bool | None = None
    #: Whether ``wanted`` is the least or the most.
    bound: Literal["least", "most"] = "least"
    #: Every repeat, as it came.
    samples: tuple[float, ...] = ()
    #: Whose figure it is: ours, or a peer's.
    subject: str = "infer-console"
    #: The part that measured it: measuring a part again replaces all that it said before.
    part: str = ""
    note: str | None = None


class Document(Struct, frozen=True, kw_only=True):
    version: int = VERSION
    machine: dict[str, Any] = {}
    results: list[Result] = []


class DocumentError(ValueError):
    """A file that should hold results and does not."""


def result(
    measure: str,
    unit: str,
    samples: Sequence[float],
    *,
    wanted: float | None = None,
    bound: Literal["least", "most"] = "least",
    subject: str = "infer-console",
    note: str | None = None,
) -> Result:
    """The median of ``samples``, and whether it is as wanted."""
    value = median(samples) if samples else None
    return Result(
        measure=measure,
        value=value,
        unit=unit,
        wanted=wanted,
        met=_met(value, wanted, bound),
        bound=bound,
        samples=tuple(samples),
        subject=subject,
        note=note,
    )


def compared(
    measure: str,
    unit: str,
    samples: Sequence[float],
    against: str,
    other: float | None,
    *,
    wanted: float | None = None,
    bound: Literal["least", "most"] = "least",
    note: str | None = None,
) -> Result:
    """The median of ``samples`` beside the value of ``against``; the ratio is unknown where either is."""
    made = result(measure, unit, samples, bound=bound, note=note)
    ratio = made.value / other if made.value is not None and other else None
    return structs.replace(made, against=against, ratio=ratio, wanted=wanted, met=_met(ratio, wanted, bound))


def _met(value: float | None, wanted: float | None, bound: str) -> bool | None:
    if value is None or wanted is None:
        return None
    return value >= wanted if bound == "least" else value <= wanted


def merged(document: Document, machine: dict[str, Any], part: str, results: Iterable[Result]) -> Document:
    """``document`` with all that it said of ``part`` replaced."""
    kept = [each for each in document.results if each.part != part]
    fresh = [msgspec.structs.replace(each, part=part) for each in results]
    return Document(machine={**document.machine, **machine}, results=kept + fresh)


def find(document: Document, measure: str, subject: str = "infer-console") -> Result | None:
    return next((r for r in document.results if r.measure == measure and r.subject == subject), None)


def read(path: Path) -> Document:
    """An empty document where there is no file; DocumentError where there is another one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Document()
    try:
        document = msgspec.json.decode(data, type=Document)
    except msgspec.DecodeError as error:
        raise DocumentError(f"{path}: {error}") from error
    if document.version != VERSION:
        raise DocumentError(f"{path}: version {document.version} was given, {VERSION} is read")
    return document


def encode(document: Document) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def write(path: Path, document: Document) -> None:
    """Whole or not at all: hours may be in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(encode(document))
    os.replace(beside, path)
