"""What a recording has beside the messages of a watch stream: lines of their own, outside of its chain, that
a reader who does not know them passes over."""

from typing import Any

from msgspec import Struct

from infer_engine.protocol.timeline import Timeline


class TimelineAside(Struct, frozen=True, kw_only=True, tag="timeline", tag_field="aside"):
    """What happened to one request: all of it, or, of one that still lived, as far as it was then."""

    timeline: Timeline


class AuditAside(Struct, frozen=True, kw_only=True, tag="audit", tag_field="aside"):
    """A record of the audit. As it was written, or, in a redacted recording, a part of it without its
    hash."""

    record: dict[str, Any]


Aside = TimelineAside | AuditAside
