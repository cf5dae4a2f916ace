"""What was known at a moment of what is told as a whole: a request's timeline, the audit."""

import dataclasses

from infer_engine.protocol import Timeline, TimelineEntry, TtftSplit
from msgspec import structs

from infer_console.state.audit import AuditPicture
from infer_console.state.picture import TimelinePicture


def timeline_until(told: TimelinePicture, at: float, pace: float) -> TimelinePicture:
    """``at`` is Unix seconds; ``pace``: seconds of the timeline's clock in one of the wall's."""
    timeline = told.timeline
    if timeline is None:
        return told
    if timeline.began_at > at:
        return TimelinePicture(told.request, message="at this moment it had not arrived yet")
    passed_s = (at - timeline.began_at) * pace
    entries = [entry for entry in timeline.entries if entry.at_s <= passed_s]
    if len(entries) == len(timeline.entries):
        return told
    kinds = {entry.kind for entry in entries}
    split = timeline.ttft_split_s
    known = "first_token" in kinds
    so_far = TtftSplit(
        gateway=split.gateway if "tokenized" in kinds else None,
        tokenize=split.tokenize if "tokenized" in kinds else None,
        queue=split.queue if known else None,
        prefill=split.prefill if known else None,
        send=split.send if "first_byte" in kinds else None,
        total=split.total if "first_byte" in kinds else None,
    )
    return dataclasses.replace(told, timeline=_short(timeline, entries, so_far), at=at)


def _short(timeline: Timeline, entries: list[TimelineEntry], split: TtftSplit) -> Timeline:
    after = timeline.omitted_after
    gap_is_in = after is not None and len(entries) > after
    return structs.replace(
        timeline,
        entries=entries,
        omitted=timeline.omitted if gap_is_in else 0,
        omitted_after=after if gap_is_in else None,
        ttft_split_s=split,
    )


def audit_until(audit: AuditPicture, at: float) -> AuditPicture:
    """Records that were written by then. Where those that are here begin later, it says so."""
    entries = tuple(entry for entry in audit.entries if entry.at is None or entry.at <= at)
    if len(entries) == len(audit.entries):
        return audit
    trouble = audit.trouble
    if not entries and audit.entries[-1].number > 1:
        trouble = "the records of that time are on their way"
    return dataclasses.replace(audit, entries=entries, trouble=trouble)
