"""Preemptions that no want of KV causes, so that every running state is met by one: in the midst of a
prefill, of forks on shared blocks, twice in a row.

They happen where the scheduler's own do: while a step is planned, before the batch gets its tokens.
"""

from collections.abc import Callable
from typing import Any

#: Of those that may be preempted: who is, the first first.
Choose = Callable[[list[Any]], list[Any]]


class ForcedPreemption:
    def __init__(self, scheduler: Any, choose: Choose) -> None:
        self.enabled = True
        #: Who was preempted by force in the latest step.
        self.victims: set[str] = set()
        self._scheduler = scheduler
        self._choose = choose
        self._plan_batch = scheduler._plan_batch
        scheduler._plan_batch = self._preempt_and_plan

    def _preempt_and_plan(self, plan: Any, now_s: float) -> int:
        batch = self._scheduler._batch
        chosen = self._choose(batch.preemptible()) if self.enabled else []
        for victim in chosen:
            batch.preempt(victim, plan, now_s)
        self.victims = {victim.id for victim in chosen}
        return self._plan_batch(plan, now_s)
