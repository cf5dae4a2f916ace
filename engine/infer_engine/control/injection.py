"""One run of test traffic: its requests as they fall due, and what became of them."""

import asyncio
from collections.abc import Callable, Iterator

from infer_engine.control.demand import Demand
from infer_engine.control.guard_rail import may_send
from infer_engine.control.profiles import Ask
from infer_engine.control.prompts import Prompts
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, GenerationSpec, Refusal
from infer_engine.model.sampling import Sampling

TENANT = "synthetic"
#: Below every priority a client can ask for: first to be preempted. Admission goes by arrival, not by
#: priority; that real requests do not queue behind test traffic is the guard rail's doing.
PRIORITY = -1_000
#: Arrivals, ends and the guard rail are looked at this often.
TURN_S = 0.1
GUARD_PERIOD_S = 0.5
#: How long requests in flight may take after the last one was sent.
LINGER_S = 60.0


class Injection:
    """``tend`` is called every GUARD_PERIOD_S and may raise, which ends it; ``progress`` after every turn."""

    def __init__(
        self,
        fleet: Fleet,
        prompts: Prompts,
        demand: Demand,
        *,
        stop_ids: tuple[int, ...],
        room_tokens: int,
        most_in_flight: int,
        tend: Callable[[], None],
        progress: Callable[[], None],
    ) -> None:
        self.demand = demand
        self.in_flight: list[Generation] = []
        self.sent = self.finished = self.failed = self.not_sent = 0
        self.held_back = False
        #: When the first request could come, and after when none does, by the fleet's clock.
        self.began_s = self.end_s = fleet.now()
        self._fleet = fleet
        self._prompts = prompts
        self._stop_ids = stop_ids
        self._room_tokens = room_tokens
        self._most_in_flight = most_in_flight
        self._tend = tend
        self._progress = progress
        #: Set when a test request ends: a closed loop sends the next one then.
        self.woken = asyncio.Event()

    async def run(self) -> None:
        asks = self.demand.asks(self._room_tokens)
        began_s = self.began_s = self._fleet.now()
        self.end_s = began_s + self.demand.duration_s
        if self.demand.concurrency is not None:
            await self._closed_loop(asks, self.demand.concurrency, began_s)
        else:
            await self._open_loop(asks, began_s)
        await self._linger()

    def cancel_all(self) -> None:
        """End what is in flight; nothing of it is counted any more."""
        for generation in self.in_flight:
            if not generation.finished:
                self._fleet.cancel(generation.id, code="injection_stopped")
        self.in_flight = []

    def planned(self) -> int | None:
        """How many requests it is about, those that were not sent among them: about as many as fall due, once
        none does any more as many as did. None in a closed loop, which sends as it is answered."""
        due = self.sent + self.not_sent
        if self._fleet.now() >= self.end_s > self.began_s:
            return due
        if self.demand.concurrency is not None:
            return None
        trace, rate_per_s = self.demand.trace, self.demand.rate_per_s or 0.0
        return max(due, round(rate_per_s * self.demand.duration_s) if trace is None else len(trace))

    async def _open_loop(self, asks: Iterator[Ask], began_s: float) -> None:
        """Arrivals never wait for answers: what may not be sent when it is due is not sent at all."""
        arrivals = self.demand.arrivals()
        now, end_s = self._fleet.now, began_s + self.demand.duration_s
        due_s = _next(arrivals, began_s)
        guard_s = began_s
        while due_s is not None and due_s <= end_s:
            room = self._room() if due_s <= now() else 0
            while due_s is not None and due_s <= min(now(), end_s):
                ask = next(asks)
                if room > 0:
                    self._send(ask)
                    room -= 1
                    self.held_back = False
                else:
                    self.not_sent += 1
                    self.held_back = True
                due_s = _next(arrivals, began_s)
            guard_s = self._turned(guard_s)
            await self._sleep(min(end_s if due_s is None else due_s, end_s))
        if self.demand.trace is None:
            while now() < end_s:  # its last arrival is past, its time is not
                guard_s = self._turned(guard_s)
                await self._sleep(end_s)

    async def _closed_loop(self, asks: Iterator[Ask], concurrency: int, began_s: float) -> None:
        """As many in flight as asked for; who may not be sent now is sent later."""
        now, end_s = self._fleet.now, began_s + self.demand.duration_s
        guard_s = began_s
        while now() < end_s:
            self.woken.clear()
            self._collect()
            wanted = concurrency - len(self.in_flight)
            room = min(wanted, self._room()) if wanted > 0 else 0
            self.held_back = room < wanted
            for _ in range(room):
                self._send(next(asks))
            guard_s = self._turned(guard_s)
            await self._sleep(end_s, or_woken=not self.held_back)

    async def _linger(self) -> None:
        self.held_back = False
        deadline_s = self._fleet.now() + LINGER_S
        guard_s = self._fleet.now()
        while self.in_flight and self._fleet.now() < deadline_s:
            guard_s = self._turned(guard_s)
            await self._sleep(deadline_s)

    def _turned(self, guard_s: float) -> float:
        """When the guard rail is to be looked at next."""
        now_s = self._fleet.now()
        if now_s >= guard_s:
            guard_s = now_s + GUARD_PERIOD_S
            self._tend()
        self._collect()
        self._progress()
        return guard_s

    async def _sleep(self, until_s: float, *, or_woken: bool = False) -> None:
        pace = self._fleet.pace
        now_s = self._fleet.now()
        left_s = max(0.0, (min(until_s, now_s + TURN_S * pace) - now_s) / pace)
        if not or_woken:
            await asyncio.sleep(left_s)
            return
        try:
            async with asyncio.timeout(left_s):
                await self.woken.wait()
        except TimeoutError:
            return

    def _room(self) -> int:
        """How many may be sent now."""
        room = may_send(self._fleet.rows(None, "waiting"), len(self._fleet.capacity.ready_replicas()))
        return min(room, self._most_in_flight - len(self.in_flight))

    def _send(self, ask: Ask) -> None:
        spec = GenerationSpec(
            prompt=self._prompts.build(ask),
            max_tokens=ask.max_tokens,
            sampling=Sampling(temperature=0.8, seed=(self.demand.seed * 1_000_003 + self.sent) & 0x7FFFFFFF),
            stop_token_ids=() if ask.exact else self._stop_ids,
            tenant=TENANT,
            tier=self.demand.tier or ask.tier,
            priority=PRIORITY,
            synthetic=True,
        )
        self.sent += 1
        try:
            self.in_flight.append(self._fleet.submit(spec))
        except Refusal:
            self.failed += 1

    def _collect(self) -> None:
        ended = [generation for generation in self.in_flight if generation.finished]
        if ended:
            self.in_flight = [generation for generation in self.in_flight if not generation.finished]
            well = sum(generation.finish_reason in ("stop", "length") for generation in ended)
            self.finished += well
            self.failed += len(ended) - well


def _next(arrivals: Iterator[float], began_s: float) -> float | None:
    at_s = next(arrivals, None)
    return None if at_s is None else began_s + at_s
