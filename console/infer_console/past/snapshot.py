"""A picture told as the messages that make it: what a keyframe, an exported recording and a new file of the
headless recorder begin with."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec
from infer_engine.protocol import (
    IDLE_STEPS_S,
    BlockRun,
    BlockState,
    Delta,
    Envelope,
    EventDelta,
    FleetDelta,
    HeldDelta,
    OperationDelta,
    ReplicaFrame,
    SnapshotBegin,
    SnapshotEnd,
)
from msgspec import UNSET

from infer_console.state.picture import NO_OWNER, BlockMap, Picture

_STATES: tuple[BlockState, ...] = ("free", "cached", "used")

_encoder = msgspec.json.Encoder()


def snapshot_deltas(picture: Picture, *, events: bool = True) -> Iterator[Delta]:
    """What a server would tell a watcher that asked for everything this picture has. Generated text,
    histories and alarms are no part of it: they are not told by a watch stream."""
    yield SnapshotBegin(
        server_version=picture.server_version or "", capabilities=sorted(picture.capabilities)
    )
    if picture.fleet is not None and picture.totals is not None:
        yield FleetDelta(fleet=picture.fleet, totals=picture.totals)
    for name, replica in picture.replicas.items():
        yield ReplicaFrame(
            replica=name,
            step=replica.step,
            at=replica.at,
            status=replica.status,
            rows=list(replica.rows.values()),
            order=list(replica.order),
            blocks=block_runs(replica.blocks) if replica.blocks is not None else None,
        )
    yield HeldDelta(rows=list(picture.held))
    for operation in picture.operations:
        yield OperationDelta(operation=operation)
    if events:
        for event in picture.events:
            yield EventDelta(event=event)
    yield SnapshotEnd()


def snapshot_lines(
    deltas: Iterator[Delta] | Sequence[Delta], epoch: str, seq: int, at: float
) -> Iterator[bytes]:
    """The deltas as messages of a watch stream that goes on after message ``seq``: all have that number, so
    that the stream's next message follows the last of them."""
    prev = 0
    for delta in deltas:
        yield _encoder.encode(Envelope(epoch=epoch, seq=seq, prev=prev, at=at, delta=delta))
        prev = seq


def block_runs(blocks: BlockMap) -> list[BlockRun]:
    """The map as runs of equal blocks, in order."""
    runs: list[BlockRun] = []
    first = 0
    untold = bytes(blocks.total)
    each = zip(
        blocks.kinds,
        blocks.owner,
        blocks.refs,
        blocks.evict_quarters or untold,
        blocks.idle_steps or untold,
        strict=True,
    )
    for (kind, owner, refs, quarter, steps), equal in groupby(each):
        count = len(tuple(equal))
        runs.append(
            BlockRun(
                first=first,
                count=count,
                state=_STATES[kind],
                owners=(blocks.owners[owner],) if owner != NO_OWNER else (),
                refs=refs,
                evict_quarter=quarter or UNSET,
                idle_s=IDLE_STEPS_S[steps - 1] if steps else UNSET,
            )
        )
        first += count
    return runs
