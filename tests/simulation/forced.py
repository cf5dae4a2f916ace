"""Preemptions that no want of KV causes, so that every running state is met by one: in the midst of a
prefill, of forks on shared blocks, twice in a row.

They happen where the scheduler's own do: while a step is planned, before the batch gets its tokens.
"""

import random
from typing import Any


class ForcedPreemption:
    def __init__(self, scheduler: Any, draw: random.Random, chance: float) -> None:
        self.chance = chance
        #: Who was preempted by force in the latest step.
        self.victims: set[str] = set()
        self._scheduler = scheduler
        self._random = draw
        self._plan_batch = scheduler._plan_batch
        scheduler._plan_batch = self._preempt_and_plan

    def _preempt_and_plan(self, plan: Any, now_s: float) -> int:
        self.victims = set()
        if self._random.random() < self.chance:
            batch = self._scheduler._batch
            candidates = batch.preemptible()
            count = min(len(candidates), self._random.choice([1, 1, 1, 2, 16]))
            for victim in self._random.sample(candidates, count):
                batch.preempt(victim, plan, now_s)
                self.victims.add(victim.id)
        return self._plan_batch(plan, now_s)
