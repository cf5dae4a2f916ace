"""Somebody else's server in our protocol's words: readings compared with those before them."""

from collections import deque

import msgspec

from infer_engine.foreign.estimate import merged, percentiles, queue_wait
from infer_engine.foreign.ours import OUR_COMMAND, OUR_GATEWAY
from infer_engine.foreign.page import Buckets
from infer_engine.foreign.reading import MAX_ENGINES, Engine, Reading, whole
from infer_engine.foreign.window import Window
from infer_engine.protocol import (
    Event,
    Fleet,
    Health,
    Replica,
    RequestRow,
    Status,
    Totals,
)

#: With requests in the batch and no counter moving for so long, a row is stalled.
STALLED_S = 30.0
MAX_EVENTS = 256
#: Rows whose restarts are remembered though they are told of no more.
MOST_REMEMBERED = 4 * MAX_ENGINES
#: The name of all ranks together among the windows.
_SHARED = ""


class Watching:
    """Times named ``now_s`` are monotonic, ``now_at`` is Unix seconds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._windows: dict[str, Window] = {}
        self._incarnations: dict[str, int] = {}
        self._started_at: float | None = None
        self._first_seen_s: dict[str, float] = {}
        self._states: dict[str, str] = {}
        #: What was told last of how it is read.
        self._note = ""
        self._numbered = 0
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.rows: dict[str, list[RequestRow]] = {}
        self.looks = 0

    def take(self, reading: Reading, now_s: float, now_at: float) -> Status:
        self.looks += 1
        if self.looks == 1 and reading.product == OUR_GATEWAY:
            message = f"an infer-console; all of it is shown by {OUR_COMMAND}"
            self._event(reading.engines[0].id, now_at, "our_gateway", message)
        self._notice_restart(reading, now_s, now_at)
        self._notice_states(reading, now_at)
        if reading.note != self._note:
            self._note = reading.note
            self._event(reading.engines[0].id, now_at, "note", reading.note or "it tells everything again")
        replicas = [self._replica(engine, reading, now_s) for engine in reading.engines]
        self._take_rows(reading, now_s)
        fleet = Fleet(
            name=self._name,
            model=reading.model,
            version=f"{reading.product} {reading.version or ''}".strip(),
            context_length=reading.context_length,
        )
        return Status(fleet=fleet, replicas=replicas, totals=self._totals(reading, replicas))

    @property
    def remembered(self) -> frozenset[str]:
        """Rows that began anew, those that are told of no more included."""
        return frozenset(self._incarnations)

    def observed(self, name: str, reading: Reading) -> Buckets:
        """What that histogram grew by over the last minute, over all rows of ``reading``, the last taken."""
        return self._all_observed(name, reading)

    # --- what happened

    def _notice_restart(self, reading: Reading, now_s: float, now_at: float) -> None:
        """A process that began later than the last one, or a counter that fell: everything counts anew."""
        started = self._started_at
        anew = started is not None and reading.started_at is not None and reading.started_at > started + 1.0
        if reading.started_at is not None:  # one that loads may not say
            self._started_at = reading.started_at
        ids = [engine.id for engine in reading.engines]
        for gone in self._windows.keys() - {_SHARED, *ids}:
            del self._windows[gone]
        if len(self._incarnations) > MOST_REMEMBERED:
            self._incarnations = {id: self._incarnations.get(id, 0) for id in ids}
        each = [(_SHARED, reading.shared), *((engine.id, engine.counts) for engine in reading.engines)]
        if anew:
            for window in self._windows.values():
                window.forget()
        fell = {name for name, counts in each if self._windows.setdefault(name, Window()).look(counts, now_s)}
        for id in ids:
            if anew or id in fell or _SHARED in fell:
                self._incarnations[id] = self._incarnations.get(id, 0) + 1
                self._first_seen_s.clear()
                self._event(id, now_at, "RESTARTED", "its counters began anew")

    def _notice_states(self, reading: Reading, now_at: float) -> None:
        states = {engine.id: engine.state for engine in reading.engines}
        for id, state in states.items():
            before = self._states.get(id)
            if before is not None and before != state:
                self._event(id, now_at, state, None)
        if self._states:
            for id in states.keys() - self._states.keys():
                self._event(id, now_at, states[id], "is there now")
            for id in self._states.keys() - states.keys():
                self._event(id, now_at, "gone", "is told of no more")
        self._states = {**states}

    def _event(self, id: str, at: float, reason: str, message: str | None) -> None:
        self._numbered += 1
        self.events.append(
            Event(seq=self._numbered, at=at, kind="replica", replica=id, reason=reason, message=message)
        )

    # --- what is

    def _replica(self, engine: Engine, reading: Reading, now_s: float) -> Replica:
        window = self._windows[engine.id]
        counters, alone = engine.counts.counters, len(reading.engines) == 1
        if alone:  # what is told for all ranks together is told for the only one
            counters = {**reading.shared.counters, **counters}
        still_s = window.still_s(now_s) if engine.running else None
        return Replica(
            id=engine.id,
            state=engine.state,
            health=_health(engine, still_s),
            step_age_s=still_s,
            running=engine.running,
            waiting=engine.waiting,
            max_running=engine.max_running,
            queue_wait_s=queue_wait(self._observed("queue", engine, reading)),
            kv=engine.kv,
            tokens_per_s=self._tokens_per_s(engine, reading),
            ttft_s=percentiles(self._observed("ttft", engine, reading)),
            itl_s=percentiles(self._observed("itl", engine, reading)),
            preemptions=_count(counters, "preemptions"),
            preemptions_per_min=_per_minute(window.rate("preemptions", 60.0)),
            prefix_hit_ratio=_hit_ratio(counters),
            prefix_queries_tokens=_count(counters, "prefix_queries"),
            prefix_hit_tokens=_count(counters, "prefix_hits"),
            waiting_reasons=engine.waiting_reasons,
            incarnation=self._incarnations.get(engine.id, 0),
            error=engine.error,
            foreign=reading.product,
        )

    def _tokens_per_s(self, engine: Engine, reading: Reading) -> float | None:
        rate = self._windows[engine.id].rate("generated")
        if rate is None and len(reading.engines) == 1:
            rate = self._windows[_SHARED].rate("generated")
        return engine.tokens_per_s if rate is None else rate

    def _observed(self, name: str, engine: Engine, reading: Reading) -> Buckets:
        own = self._windows[engine.id].observed(name)
        return self._windows[_SHARED].observed(name) if not own and len(reading.engines) == 1 else own

    def _all_observed(self, name: str, reading: Reading) -> Buckets:
        shared = self._windows[_SHARED].observed(name)
        return shared or merged([self._windows[engine.id].observed(name) for engine in reading.engines])

    def _totals(self, reading: Reading, replicas: list[Replica]) -> Totals:
        reasons: dict[str, int] = {}
        for replica in replicas:
            for reason, number in replica.waiting_reasons.items():
                reasons[reason] = reasons.get(reason, 0) + number
        rate = self._windows[_SHARED].rate("generated")
        return Totals(
            replicas=len(replicas),
            ready=sum(replica.state == "ready" for replica in replicas),
            running=_sum([replica.running for replica in replicas]),
            waiting=_sum([replica.waiting for replica in replicas]),
            kv_used_ratio=_kv_ratio(reading.engines),
            tokens_per_s=_total([replica.tokens_per_s for replica in replicas]) if rate is None else rate,
            queue_wait_s=queue_wait(self._all_observed("queue", reading)),
            ttft_s=percentiles(self._all_observed("ttft", reading)),
            itl_s=percentiles(self._all_observed("itl", reading)),
            preemptions=_sum([replica.preemptions for replica in replicas]),
            waiting_reasons=reasons,
            finished=reading.finished,
        )

    def _take_rows(self, reading: Reading, now_s: float) -> None:
        """Requests are as old as we know them: where they came from is not told."""
        seen: dict[str, float] = {}
        self.rows = {}
        for engine in reading.engines:
            if engine.rows is None:
                continue
            for row in engine.rows:
                seen[row.id] = self._first_seen_s.get(row.id, now_s)
            self.rows[engine.id] = [
                msgspec.structs.replace(row, age_s=now_s - seen[row.id]) for row in engine.rows
            ]
        self._first_seen_s = seen


def _health(engine: Engine, still_s: float | None) -> Health | None:
    if engine.state == "failed":
        return "bad"
    if engine.running is None:
        return None
    if not engine.running:
        return "idle"
    return "stalled" if still_s is not None and still_s >= STALLED_S else "ok"


def _kv_ratio(engines: list[Engine]) -> float | None:
    """Weighted by what each can hold; where that is told of none and there is one, its own word."""
    known = [
        (engine.kv.used, engine.kv.total)
        for engine in engines
        if engine.kv.used is not None and engine.kv.total
    ]
    if len(known) == len(engines):
        return sum(used for used, _ in known) / sum(total for _, total in known)
    return engines[0].kv_used_ratio if len(engines) == 1 else None


def _hit_ratio(counters: dict[str, float]) -> float | None:
    queries, hits = counters.get("prefix_queries"), counters.get("prefix_hits")
    return None if not queries or hits is None else min(1.0, max(0.0, hits / queries))


def _count(counters: dict[str, float], name: str) -> int | None:
    return whole(counters.get(name))


def _per_minute(rate: float | None) -> float | None:
    return None if rate is None else rate * 60.0


def _sum(values: list[int | None]) -> int | None:
    """Of those that are told; None where none is."""
    told = [value for value in values if value is not None]
    return sum(told) if told else None


def _total(values: list[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None
