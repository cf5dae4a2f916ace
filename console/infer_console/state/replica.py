"""What is known of one replica, folded from its frames."""

from infer_engine.protocol import Replica, ReplicaFrame, RequestRow

from infer_console.state.blocks import BlockTable
from infer_console.state.picture import ReplicaPicture
from infer_console.state.series import SeriesSet


class ReplicaFold:
    """``picture()`` returns the same object until something changes, so that views can cache by identity."""

    __slots__ = (
        "_blocks",
        "_history",
        "_order",
        "_picture",
        "_rows",
        "_status",
        "_wanted_order",
        "at",
        "id",
        "step",
    )

    def __init__(self, replica: str, history: SeriesSet) -> None:
        self.id = replica
        self.step = 0
        self.at = 0.0
        self._history = history
        self._status: Replica | None = None
        self._rows: dict[str, RequestRow] = {}
        #: The order as last told, and what of it has rows.
        self._wanted_order: list[str] = []
        self._order: tuple[str, ...] = ()
        self._blocks: BlockTable | None = None
        self._picture: ReplicaPicture | None = None

    @property
    def status(self) -> Replica | None:
        return self._status

    def apply(self, frame: ReplicaFrame) -> None:
        self.step, self.at = frame.step, frame.at
        if frame.status is not None:
            if self._status is not None and frame.status.incarnation != self._status.incarnation:
                self._blocks = None  # those of a life that is over
            self._status = frame.status
        if frame.rows or frame.removed:
            self._patch_rows(frame.rows or [], frame.removed)
        if frame.order is not None:
            self._wanted_order = frame.order
        if frame.rows or frame.removed or frame.order is not None:
            self._order = tuple(request for request in self._wanted_order if request in self._rows)
        self._fit_blocks()
        if frame.blocks:
            self._patch_blocks(frame)
        elif frame.blocks is not None:
            self._blocks = None  # the server does not know them any more
        self._picture = None

    def _patch_rows(self, rows: list[RequestRow], removed: list[str]) -> None:
        patched = dict(self._rows)  # pictures already handed out keep theirs
        for request in removed:
            patched.pop(request, None)
        for row in rows:
            patched[row.id] = row
        self._rows = patched

    def _fit_blocks(self) -> None:
        """Follow the pool's size, which a restart may have changed."""
        kv = self._status.kv if self._status else None
        if self._blocks is not None and kv is not None and kv.total is not None:
            self._blocks.resize(kv.total, kv.block_size or 0)

    def _patch_blocks(self, frame: ReplicaFrame) -> None:
        runs = frame.blocks or []
        if self._blocks is None:
            kv = self._status.kv if self._status else None
            total = kv.total if kv else None
            if total is None:
                total = max((run.first + run.count for run in runs), default=0)
            self._blocks = BlockTable(total, (kv.block_size if kv else None) or 0)
        self._blocks.apply(runs)

    def sampled(self) -> None:
        """The history got a sample."""
        self._picture = None

    def picture(self) -> ReplicaPicture | None:
        """None until a status came: a replica is not shown on a guess."""
        if self._status is None:
            return None
        if self._picture is None:
            self._picture = ReplicaPicture(
                status=self._status,
                rows=self._rows,
                order=self._order,
                blocks=self._blocks.picture() if self._blocks is not None else None,
                step=self.step,
                at=self.at,
                history=self._history.series(),
            )
        return self._picture
