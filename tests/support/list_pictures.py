"""The incident as the Requests, Streams and Events screens see it: all requests listed, timelines, token
times, operations."""

import dataclasses

import msgspec
from infer_console.state.picture import Listing, Picture, StreamPicture, TimelinePicture
from infer_engine.protocol import Event, Operation, RequestRow, Timeline, TimelineEntry, TtftSplit
from support import pictures
from support.pictures import NOW, QUEUE, ROSTER, running, waiting

ELSEWHERE: tuple[RequestRow, ...] = (
    running("7f2a9e", "globex", 8_100, 211, 600, 520, 31, replica="r6", moves=1, last_itl_s=0.029),
    running("7f31d0", "initech", 5_800, 400, 1_000, 388, 22, replica="r5", preemptions=2, last_itl_s=0.101),
    running(
        "7f3c88",
        "initech",
        2_100,
        12,
        256,
        132,
        2.1,
        replica="r4",
        synthetic=True,
        client_id="retry-7",
        ttft_s=0.9,
    ),
)
HELD: tuple[RequestRow, ...] = (
    waiting("7f3f11", "globex", 3_000, 188, 1.5, "loading", replica=None, admissible_blocks=None),
)
#: Still waits: 47 s in the queue.
WAITS = Timeline(
    request="7f3b02",
    began_at=NOW - 47.4,
    entries=[
        TimelineEntry(kind="arrived", at_s=0.0),
        TimelineEntry(kind="received", at_s=0.004),
        TimelineEntry(kind="authenticated", at_s=0.005),
        TimelineEntry(kind="tokenized", at_s=0.31, tokens=100_008),
        TimelineEntry(kind="routed", at_s=0.31, replica="r2", reason="prefix: 0 of 6,250 blk; least loaded"),
        TimelineEntry(kind="queued", at_s=0.31, replica="r2"),
    ],
    ttft_split_s=TtftSplit(gateway=0.01, tokenize=0.3),
)
#: Had its share of everything.
LIVED = Timeline(
    request="7f2a9e",
    began_at=NOW - 31.0,
    entries=[
        TimelineEntry(kind="arrived", at_s=0.0),
        TimelineEntry(kind="received", at_s=0.002),
        TimelineEntry(kind="authenticated", at_s=0.003),
        TimelineEntry(kind="tokenized", at_s=0.03, tokens=8_100),
        TimelineEntry(kind="routed", at_s=0.031, replica="r3", reason="prefix: 384 blk"),
        TimelineEntry(kind="queued", at_s=0.031, replica="r3"),
        TimelineEntry(kind="admitted", at_s=3.2, replica="r3", blocks=507),
        TimelineEntry(kind="prefill", at_s=3.9, replica="r3", tokens=512),
        TimelineEntry(kind="prefill", at_s=4.5, replica="r3", tokens=512),
        TimelineEntry(kind="prefill", at_s=9.1, replica="r3", tokens=388, omitted=12),
        TimelineEntry(kind="first_token", at_s=9.1, replica="r3"),
        TimelineEntry(kind="first_byte", at_s=9.2),
        TimelineEntry(
            kind="preempted", at_s=14.0, replica="r3", reason="recompute", tokens=8_220, blocks=514
        ),
        TimelineEntry(kind="resumed", at_s=16.4, replica="r3", blocks=514),
        TimelineEntry(kind="held", at_s=26.9, reason="draining"),
        TimelineEntry(kind="moved", at_s=27.0, replica="r6", reason="draining"),
        TimelineEntry(kind="queued", at_s=27.0, replica="r6"),
        TimelineEntry(kind="admitted", at_s=27.1, replica="r6", blocks=520),
    ],
    ttft_split_s=TtftSplit(gateway=0.01, tokenize=0.02, queue=3.17, prefill=5.9, send=0.1, total=9.2),
)
ENDINGS: tuple[Event, ...] = (
    Event(
        seq=1_911,
        at=NOW - 200,
        kind="finish",
        replica="r0",
        request="7f0001",
        tenant="globex",
        tier="interactive",
        reason="error",
        tokens=3,
        blocks=40,
        message="kv_exhausted",
    ),
    Event(
        seq=1_912,
        at=NOW - 90,
        kind="finish",
        replica="r1",
        request="7f0002",
        tenant="acme",
        tier="batch",
        reason="cancelled",
        tokens=120,
        blocks=77,
        actor="kim",
    ),
)
#: As the server keeps them: one whose end was before the console came, too.
ENDED: tuple[RequestRow, ...] = (
    msgspec.structs.replace(
        running("7f0002", "acme", 4_400, 120, 2_000, 0, 95, replica="r1", tier="batch", ttft_s=1.9),
        state="finished",
        phase=None,
        finish_reason="cancelled",
        ended_at=NOW - 90,
        queue_wait_s=1.2,
        last_itl_s=0.031,
        preemptions=1,
    ),
    msgspec.structs.replace(
        running("7f0000", "initech", 1_204, 412, 512, 0, 14, replica="r6", ttft_s=0.4, client_id="job-9"),
        state="finished",
        phase=None,
        finish_reason="stop",
        ended_at=NOW - 250,
        queue_wait_s=0.01,
        last_itl_s=0.029,
        moves=1,
    ),
)


def listed(**changes: object) -> Picture:
    """All requests of the fleet, as far as the server lists them."""
    rows = (*QUEUE, *HELD, *ROSTER, *ELSEWHERE)
    events = [msgspec.structs.replace(event, seq=1_912 + event.seq) for event in pictures.EVENTS]
    fields: dict[str, object] = {
        "listing": Listing(rows, NOW - 0.4, {"waiting": 19, "running": 174}, ENDED),
        "events": (*ENDINGS, *events),
        "role": "operator",
        "capabilities": pictures.CAPABILITIES | {"preempt", "timeline", "token_times"},
    }
    return dataclasses.replace(pictures.incident(), **(fields | changes))  # pyright: ignore[reportArgumentType]


def with_timeline(timeline: Timeline) -> Picture:
    return listed(timeline=TimelinePicture(timeline.request, timeline, at=NOW))


def stream(request: str, gaps_s: list[float | None], text: str = "", heard_s: float = 0.05) -> StreamPicture:
    """Its last token came ``heard_s`` ago; the characters of the text are divided among the tokens."""
    ats = [NOW - heard_s]
    for gap_s in reversed(gaps_s[1:]):
        ats.append(ats[-1] - (gap_s or 0.0))
    each, rest = divmod(len(text), len(gaps_s))
    return StreamPicture(
        request,
        text,
        len(gaps_s),
        last_itl_s=gaps_s[-1],
        gaps_s=tuple(gaps_s),
        ats=tuple(reversed(ats)),
        characters=tuple([each] * (len(gaps_s) - 1) + [each + rest]) if text else (),
        heard_at=NOW - heard_s,
    )


TALE = (
    "The capital of France is Paris. It stands on the Seine, and has done so for two thousand years. "
    "Its bridges are older than most states."
)


def streaming(**changes: object) -> Picture:
    """Four streams: a smooth one, one with a stall, one that was preempted and moved, one that is silent; and
    one that prefills."""
    smooth: list[float | None] = [None, *[0.030] * 95]
    stalled: list[float | None] = [None, *[0.031] * 40, 0.07, 0.14, 1.42, *[0.030] * 20, 0.31, *[0.033] * 9]
    moved: list[float | None] = [None, *[0.029] * 60, 2.3, *[0.029] * 40, 1.4, *[0.028] * 30]
    out, back = NOW - 0.05 - 0.029 * 40 - 1.4 - 0.028 * 30 - 2.2, NOW - 0.05 - 0.028 * 30 - 1.0
    happened = (
        Event(
            seq=2_001,
            at=out,
            kind="preempt",
            replica="r3",
            request="7f2a9e",
            reason="recompute",
            tokens=8_220,
        ),
        Event(seq=2_002, at=out + 2.0, kind="admit", replica="r3", request="7f2a9e", wait_s=2.0, blocks=514),
        Event(
            seq=2_003,
            at=back,
            kind="move",
            replica="r3",
            to_replica="r6",
            request="7f2a9e",
            reason="draining",
            tokens=8_311,
        ),
    )
    streams = {
        "7efb20": stream("7efb20", smooth, TALE),
        "7ef860": stream("7ef860", stalled, TALE),
        "7f2a9e": stream("7f2a9e", moved, TALE),
        "7f31d0": stream("7f31d0", [None, *[0.1] * 30], TALE, heard_s=4.2),
    }
    return listed(streams=streams, events=happened, **changes)


#: The requests of ``streaming`` in the order of their panels.
PANELS = ("7efb20", "7ef860", "7f2a9e", "7f31d0", "7f3a91")

OPERATIONS: tuple[Operation, ...] = (
    *pictures.incident().operations,
    Operation(
        id="op-120",
        kind="cancel",
        target="7f0002",
        phase="succeeded",
        actor="kim",
        reason="runaway",
        started_at=NOW - 91,
        ended_at=NOW - 90,
        message="cancelled after 120 tokens",
    ),
    Operation(
        id="op-121",
        kind="headroom",
        target="fleet",
        phase="failed",
        actor="raj",
        started_at=NOW - 30,
        ended_at=NOW - 29,
        message="r7 is loading",
        params={"percent": 12.5, "tier": "interactive"},
    ),
)


def operating(**changes: object) -> Picture:
    return listed(operations=OPERATIONS, **changes)
