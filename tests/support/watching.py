"""A watcher of the control API's stream: it checks the chain of messages and applies deltas as a console
does."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from infer_engine.protocol import (
    BlockRun,
    Delta,
    Envelope,
    Event,
    EventDelta,
    FleetDelta,
    HeldDelta,
    Operation,
    OperationDelta,
    Replica,
    ReplicaFrame,
    ReplicaGone,
    RequestRow,
    Reset,
    SnapshotBegin,
    SnapshotEnd,
    Step,
    StepDelta,
)
from support.server import EngineServer

TIMEOUT_S = 60.0


@dataclass
class MirroredReplica:
    status: Replica | None = None
    rows: dict[str, RequestRow] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    #: One entry per block.
    blocks: dict[int, BlockRun] = field(default_factory=dict)
    step: int = 0

    def in_state(self, state: str) -> list[RequestRow]:
        return [self.rows[request] for request in self.order if self.rows[request].state == state]


@dataclass
class Mirror:
    """All that the deltas so far amount to."""

    replicas: dict[str, MirroredReplica] = field(default_factory=dict)
    fleet: FleetDelta | None = None
    held: list[RequestRow] = field(default_factory=list)
    operations: dict[str, Operation] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    complete: bool = False
    epoch: str = ""
    seq: int = 0

    def apply(self, envelope: Envelope) -> None:
        assert envelope.prev == self.seq, f"gap: {envelope.prev} follows {self.seq}"
        assert envelope.seq > self.seq
        assert self.epoch in ("", envelope.epoch)
        self.epoch, self.seq = envelope.epoch, envelope.seq
        self._fold(envelope.delta)

    def _fold(self, delta: Delta) -> None:
        match delta:
            case SnapshotBegin():
                self.replicas.clear()
                self.complete = False
            case SnapshotEnd():
                self.complete = True
            case ReplicaFrame():
                self._frame(delta)
            case ReplicaGone():
                del self.replicas[delta.replica]
            case FleetDelta():
                self.fleet = delta
            case HeldDelta():
                self.held = delta.rows
            case OperationDelta():
                self.operations[delta.operation.id] = delta.operation
            case EventDelta():
                if not self.events or delta.event.seq > self.events[-1].seq:
                    self.events.append(delta.event)
            case StepDelta():
                self.steps.append(delta.step)
            case Reset():
                self.resets.append(delta)
            case _:
                pass

    def _frame(self, frame: ReplicaFrame) -> None:
        replica = self.replicas.setdefault(frame.replica, MirroredReplica())
        assert frame.step >= replica.step
        replica.step = frame.step
        replica.status = frame.status or replica.status
        for request in frame.removed:
            del replica.rows[request]
        replica.rows.update((row.id, row) for row in frame.rows or [])
        if frame.order is not None:
            replica.order = frame.order
        for run in frame.blocks or []:
            replica.blocks.update((number, run) for number in range(run.first, run.first + run.count))
        assert set(replica.order) == set(replica.rows)


def check_adds_up(replica: MirroredReplica) -> None:
    """Rows, block map and KV counts of one moment agree: every block is somewhere, and somebody's when
    used."""
    status = replica.status
    assert status is not None
    kv = status.kv
    if kv.used is None or kv.total is None or not replica.blocks:
        return
    assert sorted(replica.blocks) == list(range(kv.total))
    counts = {"free": 0, "cached": 0, "used": 0}
    owned: dict[str, int] = {}
    for run in replica.blocks.values():
        counts[run.state] += 1
        assert len(run.owners) == (run.refs if run.state == "used" else 0)
        for owner in run.owners:
            owned[owner] = owned.get(owner, 0) + 1
    assert counts == {"free": kv.free, "cached": kv.cached, "used": kv.used}
    assert owned == {row.id: row.kv_blocks for row in replica.rows.values() if row.kv_blocks}
    assert status.running == len(replica.in_state("running"))
    assert status.waiting == len(replica.in_state("waiting"))


class Watch:
    def __init__(self, envelopes: AsyncGenerator[Envelope]) -> None:
        self._envelopes = envelopes
        self.mirror = Mirror()
        #: Called after every frame was applied.
        self.on_frame: Callable[[MirroredReplica], None] = check_adds_up
        self.frames = 0

    async def next(self) -> Delta:
        envelope = await anext(self._envelopes)
        self.mirror.apply(envelope)
        if isinstance(envelope.delta, ReplicaFrame):
            self.frames += 1
            self.on_frame(self.mirror.replicas[envelope.delta.replica])
        return envelope.delta

    async def until(self, condition: Callable[[Mirror], bool]) -> Mirror:
        """Apply messages until ``condition`` holds; TimeoutError when it does not in time."""
        async with asyncio.timeout(TIMEOUT_S):
            while not (self.mirror.complete and condition(self.mirror)):
                await self.next()
        return self.mirror


@asynccontextmanager
async def watching(server: EngineServer, query: str = "hz=20") -> AsyncGenerator[Watch]:
    """A watcher that has its snapshot. Every frame is checked to add up."""
    async with (
        server.async_control() as client,
        client.stream("GET", f"/control/v1/watch?{query}") as response,
        aclosing(envelopes_of(response.aiter_lines())) as envelopes,
    ):
        assert response.status_code == 200
        watch = Watch(envelopes)
        await watch.until(lambda mirror: mirror.complete)
        yield watch


async def envelopes_of(lines: AsyncGenerator[str]) -> AsyncGenerator[Envelope]:
    """Parse SSE messages; the id and event lines must say what the envelope says."""
    head: dict[str, str] = {}
    async for line in lines:
        name, _, value = line.partition(": ")
        if name == "data":
            envelope = msgspec.json.decode(value, type=Envelope)
            tag = type(envelope.delta).__struct_config__.tag
            assert head == {"id": f"{envelope.epoch}:{envelope.seq}", "event": tag}
            yield envelope
            head = {}
        elif line:
            head[name] = value


def envelopes(message: bytes) -> list[Envelope]:
    """Those in a piece of the stream."""
    lines = [line for line in message.split(b"\n") if line.startswith(b"data: ")]
    return [msgspec.json.decode(line[6:], type=Envelope) for line in lines]


def idle_step(number: int, replica: str = "r0") -> Step:
    """A step in which nothing happened."""
    return Step(
        replica=replica,
        incarnation=1,
        step=number,
        at=1.0,
        duration_s=0.001,
        running=0,
        waiting=0,
        decode_tokens=0,
        prefill_tokens=0,
        kv_used=0,
        kv_free=0,
    )
