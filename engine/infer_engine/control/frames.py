"""What to tell a watcher about one replica: the difference between what it was last sent and what is now."""

from dataclasses import dataclass, field

from msgspec import structs

from infer_engine.protocol import (
    BlockRun,
    Percentiles,
    QueueWait,
    Replica,
    ReplicaFrame,
    RequestRow,
    TtftSplits,
)

#: Ages grow all the time; alone they are worth a message only this often.
AGE_PERIOD_S = 1.0
#: Rows whose ages alone changed that may be sent per second; a long queue is refreshed less often.
AGE_ROWS_PER_S = 200


@dataclass(frozen=True, slots=True)
class Detail:
    """Which parts of a replica a watcher asked for."""

    roster: bool = True
    blocks: bool = True
    steps: bool = True


STATUS_ONLY = Detail(roster=False, blocks=False, steps=False)


@dataclass(slots=True)
class SentReplica:
    """What one watcher knows about one replica; empty before the first frame, which therefore is whole."""

    status: Replica | None = None
    rows: dict[str, RequestRow] = field(default_factory=dict)
    order: list[str] | None = None
    runs: frozenset[BlockRun] = frozenset()
    #: Whose runs these are.
    incarnation: int | None = None
    ages_at_s: float = 0.0
    age_period_s: float = AGE_PERIOD_S
    #: The frame that was looked at last: in the same one only ages can be due.
    seen: ReplicaFrame | None = None

    def delta(self, whole: ReplicaFrame, detail: Detail, now_s: float) -> ReplicaFrame | None:
        """The frame to send now, or None when the watcher knows everything; remembers it as sent. ``whole``
        is a frame with all its parts, from one moment; so is what the watcher has after applying the
        result."""
        ages_due = now_s - self.ages_at_s >= self.age_period_s
        if whole is self.seen and not ages_due:
            return None
        self.seen = whole
        status = self._status_change(whole.status, ages_due)
        rows, removed, order = self._roster_change(whole, ages_due) if detail.roster else (None, [], None)
        blocks = self._block_change(whole) if detail.blocks else None
        if ages_due:
            self.ages_at_s = now_s
            self.age_period_s = max(AGE_PERIOD_S, len(self.rows) / AGE_ROWS_PER_S)
        if status is None and rows is None and not removed and order is None and blocks is None:
            return None
        return ReplicaFrame(
            replica=whole.replica,
            step=whole.step,
            at=whole.at,
            status=status,
            rows=rows,
            removed=removed,
            order=order,
            blocks=blocks,
        )

    def _status_change(self, status: Replica | None, ages_due: bool) -> Replica | None:
        before = self.status
        if status is None or status == before:
            return None
        if before is not None and not ages_due and _ageless_status(status) == _ageless_status(before):
            return None
        self.status = status
        return status

    def _roster_change(
        self, whole: ReplicaFrame, ages_due: bool
    ) -> tuple[list[RequestRow] | None, list[str], list[str] | None]:
        now = {row.id: row for row in whole.rows or []}
        changed = [row for row in now.values() if row_changed(self.rows.get(row.id), row, ages_due)]
        removed = [request for request in self.rows if request not in now]
        order = whole.order if whole.order is not None else list(now)
        new_order = None if order == self.order else order
        for request in removed:
            del self.rows[request]
        self.rows.update((row.id, row) for row in changed)
        first = self.order is None
        self.order = order
        return (changed if changed or first else None), removed, new_order

    def _block_change(self, whole: ReplicaFrame) -> list[BlockRun] | None:
        blocks, status = whole.blocks, whole.status
        had = bool(self.runs)
        if status is not None and status.incarnation != self.incarnation:
            self.incarnation, self.runs = status.incarnation, frozenset()
        if blocks is None:
            if status is not None and status.kv.used is None:
                self.runs = frozenset()
            # Not observed yet: what the watcher has still is the newest known, unless that life is over.
            return [] if had and not self.runs else None
        runs = frozenset(blocks)
        changed = [run for run in blocks if run not in self.runs]
        self.runs = runs
        return changed or None


def row_changed(before: RequestRow | None, now: RequestRow, ages_due: bool) -> bool:
    if before is None:
        return True
    if before == now:
        return False
    return ages_due or _ageless_row(before) != _ageless_row(now)


def _ageless_row(row: RequestRow) -> RequestRow:
    return structs.replace(row, age_s=0.0, queue_wait_s=None)


def _ageless_status(status: Replica) -> Replica:
    """Without ages, and without the figures over the last minute that change by themselves as it passes."""
    return structs.replace(
        status,
        step_age_s=None,
        queue_wait_s=QueueWait(),
        tokens_per_s=None,
        ttft_s=Percentiles(),
        itl_s=Percentiles(),
        preemptions_per_min=None,
        batch_preemptions_per_min=None,
        prefix_hit_ratio=None,
        ttft_split_s=TtftSplits(),
    )
