"""Which trace of a client's a request belongs to, as W3C's ``traceparent`` header says it."""

import re
from dataclasses import dataclass

_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceParent:
    """``trace_id`` has 128 bits and ``span_id``, that of the client's span, 64; neither is 0."""

    trace_id: int
    span_id: int
    #: The client keeps this trace.
    sampled: bool


def read_traceparent(header: str | None) -> TraceParent | None:
    """None where there is none, and where it cannot be read: by its rules a trace then begins here."""
    found = None if header is None else _HEADER.fullmatch(header.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & 1))
