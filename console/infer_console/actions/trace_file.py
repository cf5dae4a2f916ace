"""A recorded arrival trace as a file: JSON lines or CSV, one request each."""

import csv
import io
import json
import math
from typing import Any, cast

from infer_engine.protocol import TraceRequest

#: Of one file, and requests in it: what the server takes.
MOST_BYTES = 1024 * 1024
MOST_REQUESTS = 10_000
FIELDS = ("arrival_s", "prompt_tokens", "output_tokens", "tier")
TIERS = ("interactive", "batch")
WANTED = (
    "JSON lines or CSV with a header: arrival_s, prompt_tokens, output_tokens and, where wanted, tier "
    "(interactive or batch)"
)


class TraceError(ValueError):
    """``str()`` says which line does not fit, and why."""


def read_trace(text: str) -> list[TraceRequest]:
    """The requests of a file in order of arrival. Raise TraceError."""
    lines = text.lstrip("\ufeff").splitlines()
    first = next((line for line in lines if line.strip()), "")
    rows = _json_rows(lines) if first.lstrip().startswith("{") else _csv_rows(lines)
    made = [_request(number, row) for number, row in rows]
    if not made:
        raise TraceError(f"no request is in it; wanted are {WANTED}")
    if len(made) > MOST_REQUESTS:
        raise TraceError(f"{len(made)} requests are in it, at most {MOST_REQUESTS} are sent")
    return sorted(made, key=lambda each: each.arrival_s)


def _json_rows(lines: list[str]) -> list[tuple[int, dict[str, Any]]]:
    rows: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"line {number} is no JSON: {str(error)[:80]}") from error
        if not isinstance(row, dict):
            raise TraceError(f"line {number} is no JSON object; wanted are {WANTED}")
        rows.append((number, cast("dict[str, Any]", row)))
    return rows


def _csv_rows(lines: list[str]) -> list[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO("\n".join(lines)), skipinitialspace=True)
    try:
        missing = [name for name in FIELDS[:3] if name not in (reader.fieldnames or ())]
        if missing:
            raise TraceError(f"the header has no {missing[0]}; wanted are {WANTED}")
        return [(reader.line_num, {name: row.get(name) for name in FIELDS}) for row in reader]
    except csv.Error as error:
        raise TraceError(f"line {reader.line_num} is no CSV: {error}") from error


def _request(number: int, row: dict[str, Any]) -> TraceRequest:
    arrival_s = _number(number, row, "arrival_s", 0.0)
    tier = row.get("tier") or "interactive"
    if tier not in TIERS:
        raise TraceError(
            f"line {number}: tier: {str(tier)[:20]!r} was given, allowed is interactive or batch"
        )
    return TraceRequest(
        arrival_s=arrival_s,
        prompt_tokens=_whole(number, row, "prompt_tokens"),
        output_tokens=_whole(number, row, "output_tokens"),
        tier=tier,
    )


def _whole(number: int, row: dict[str, Any], name: str) -> int:
    value = _number(number, row, name, 1.0)
    if value != int(value):
        raise TraceError(f"line {number}: {name}: {value:g} was given, allowed is a whole number")
    return int(value)


def _number(number: int, row: dict[str, Any], name: str, least: float) -> float:
    given = row.get(name)
    try:
        if given is None or isinstance(given, bool):
            raise ValueError
        value = float(given)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or value < least:
        shown = "nothing" if given is None else repr(str(given)[:20])
        raise TraceError(f"line {number}: {name}: {shown} was given, allowed is a number from {least:g} on")
    return value
