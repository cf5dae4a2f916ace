"""What an upstream's readings come to, one after another: its KV in tokens, whether it moves, whether it
began anew. What a server says is not to be trusted: what cannot be is as good as not told."""

from collections.abc import Callable
from dataclasses import dataclass

from infer_engine.foreign.reading import Counts, Engine, Reading

#: The name of all ranks together.
SHARED = ""
#: Tokens beyond this are no server's KV.
MOST_TOKENS = 1 << 34


@dataclass(frozen=True, slots=True)
class Look:
    moved: bool
    restarted: bool
    asleep: bool
    #: Why it will not do any more.
    trouble: str | None = None


class Books:
    def __init__(self, reading: Reading) -> None:
        self._counted: dict[str, Counts] = {}
        #: Requests and how far they are, where that is told.
        self._at_work: list[tuple[str, int, int]] = []
        self._started_at = reading.started_at
        self._model = reading.model
        self.max_running: int | None = None
        #: Requests there, everybody's.
        self.running: int | None = None
        self.waiting: int | None = None
        self.kv_total_tokens: int | None = None
        self.kv_used_tokens: int | None = None
        self.kv_cached_tokens: int | None = None
        self.take(reading)

    def take(self, reading: Reading) -> Look:
        engines = reading.engines
        self.max_running = _sum(engines, lambda engine: engine.max_running)
        self.running = _sum(engines, lambda engine: engine.running)
        self.waiting = _sum(engines, lambda engine: engine.waiting)
        self.kv_total_tokens = _sum(engines, _in_tokens("total"))
        self.kv_used_tokens = _sum(engines, _in_tokens("used"))
        self.kv_cached_tokens = _sum(engines, _in_tokens("cached"))
        at_work = [
            (row.id, row.computed_tokens, row.generated_tokens)
            for engine in engines
            for row in engine.rows or []
        ]
        worked, self._at_work = at_work != self._at_work, at_work
        counted = {SHARED: reading.shared, **{engine.id: engine.counts for engine in engines}}
        moved = worked or any(
            (each.counters, each.live) != (before.counters, before.live)
            for name, each in counted.items()
            if (before := self._counted.get(name)) is not None
        )
        both = self._counted.keys() & counted.keys()
        anew = any(_began_anew(self._counted[name], counted[name]) for name in both)
        self._counted = counted
        started, self._started_at = self._started_at, reading.started_at
        later = started is not None and reading.started_at is not None and reading.started_at > started + 1.0
        return Look(
            moved=moved,
            restarted=anew or later,
            asleep=any(engine.state == "drained" for engine in engines),
            trouble=self._trouble(reading),
        )

    def _trouble(self, reading: Reading) -> str | None:
        if reading.model != self._model:
            return f"it serves another model now: {reading.model[:80]}"
        for engine in reading.engines:
            if engine.state in ("failed", "starting"):
                return engine.error or f"it is {engine.state}"
        return None


def _began_anew(before: Counts, now: Counts) -> bool:
    """Everything that was counted is less: one counter alone that falls is a lie, or a mistake."""
    pairs = [(old, now.counters[name]) for name, old in before.counters.items() if name in now.counters]
    return any(new < old for old, new in pairs) and all(new < old or old == new == 0 for old, new in pairs)


def _in_tokens(part: str) -> Callable[[Engine], int | None]:
    def tokens(engine: Engine) -> int | None:
        blocks: int | None = getattr(engine.kv, part)
        size = engine.kv.block_size
        if blocks is None or size is None or not 0 <= blocks * size <= MOST_TOKENS:
            return None
        return blocks * size

    return tokens


def _sum(engines: list[Engine], of: Callable[[Engine], int | None]) -> int | None:
    """None where it is not told of all of them."""
    told = [of(engine) for engine in engines]
    known = [each for each in told if each is not None]
    return sum(known) if known and len(known) == len(told) else None
