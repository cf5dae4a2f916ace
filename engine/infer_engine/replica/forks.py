"""Choices of one request that wait for its prompt to be computed, so that they can share it."""

from infer_engine.core.observe import CoreRow
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler


class PendingForks:
    """A choice is held here only while its parent is in the scheduler and nothing has been generated from
    the parent's prompt: whatever becomes of the parent lets its choices go on."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        #: By id, in the order in which they came; with the parent's id.
        self._held: dict[str, tuple[str, Request]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, parent_id: str, child: Request) -> bool:
        """False where there is nothing to wait for."""
        if child.id in self._held or not self._scheduler.admission_open or self._is_settled(parent_id):
            return False
        self._held[child.id] = (parent_id, child)
        return True

    def drop(self, request_id: str) -> bool:
        return self._held.pop(request_id, None) is not None

    def take_settled(self) -> list[tuple[str, Request]]:
        """Those that need not wait any longer, each with its parent's id."""
        if not self._held:
            return []
        settled = [held for held in self._held.values() if self._is_settled(held[0])]
        for _, child in settled:
            del self._held[child.id]
        return settled

    def take_all(self) -> list[str]:
        """Ids of all that are held, which are so no more."""
        held = list(self._held)
        self._held.clear()
        return held

    def rows(self) -> list[CoreRow]:
        """As an operator sees them: waiting behind their parent."""
        return [
            CoreRow(
                id=child.id,
                state="waiting",
                phase=None,
                computed_tokens=0,
                cached_tokens=0,
                generated_tokens=0,
                kv_blocks=0,
                preemptions=0,
                waiting_reason="behind",
                behind=parent_id,
            )
            for parent_id, child in self._held.values()
        ]

    def _is_settled(self, parent_id: str) -> bool:
        """The parent has gone, its prompt is computed, or was before it was preempted."""
        parent = self._scheduler.get(parent_id)
        return parent is None or bool(parent.output) or parent.computed_tokens >= len(parent.prompt)
