"""What tenants and tiers use now: of the fleet, the largest of them and how often they ask; of one replica,
who holds its pool."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from msgspec import structs

from infer_engine.fleet.crowding import Crowding
from infer_engine.fleet.generation import GenerationSpec
from infer_engine.fleet.tenant_rate import TenantRate
from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import TenantUse, TierUse
from infer_engine.telemetry.windows import RateWindow

#: Rows of the fleet's largest tenants, and of a replica's.
MOST_ROWS = 16
MOST_REPLICA_ROWS = 3
PERIOD_S = 60.0
#: Tenants whose refusals are counted apart; of more, those refused last the longest ago begin anew.
MOST_REFUSED = 4_096
#: Rows are made anew at most this often: they go through all requests.
ROWS_PERIOD_S = 1.0


@dataclass(slots=True)
class _Sum:
    running: int = 0
    waiting: int = 0
    kv_blocks: float = 0.0
    prompts: list[int] = field(default_factory=list[int])
    #: Whether one of the requests is no test traffic.
    real: bool = False

    def add(self, request: Tracked, part: float) -> None:
        """``part`` of its blocks is its own, reckoned over all of its replica."""
        if request.state == "running":
            self.running += 1
        else:
            self.waiting += 1
        self.kv_blocks += request.blocks * part
        self.real = self.real or not request.generation.spec.synthetic

    @property
    def weight(self) -> tuple[float, int]:
        return self.kv_blocks, self.running + self.waiting


@dataclass(slots=True)
class TenantUses:
    """Moments are seconds of one monotonic clock. Test traffic is not counted in what comes in."""

    #: Requests taken, by tenant, within the last minute.
    rate: TenantRate
    taken_requests: int = 0
    taken_prompt_tokens: int = 0
    _taken: RateWindow = field(default_factory=lambda: RateWindow(PERIOD_S, 0.0))
    _refused: RateWindow = field(default_factory=lambda: RateWindow(PERIOD_S, 0.0))
    _refused_by: TenantRate = field(default_factory=lambda: TenantRate(MOST_REFUSED))
    _crowding: Crowding = field(default_factory=Crowding)
    _rows: list[TenantUse] = field(default_factory=list[TenantUse])
    _rows_s: float | None = None

    def taken(self, spec: GenerationSpec, now_s: float) -> None:
        if not spec.synthetic:
            self.taken_requests += 1
            self.taken_prompt_tokens += len(spec.prompt)
            self._taken.add(1, now_s)

    def refused(self, spec: GenerationSpec, now_s: float) -> None:
        if not spec.synthetic:
            self._refused.add(1, now_s)
            self._refused_by.take(spec.tenant, None, now_s)

    def forget_idle(self, now_s: float) -> None:
        self._refused_by.forget_idle(now_s)

    def rows(
        self,
        requests: Sequence[Tracked],
        now_s: float,
        *,
        used: Mapping[str, int | None],
        pool_blocks: int,
        at: float,
    ) -> list[TenantUse]:
        """The largest by blocks, then all others as one row, where there are any. ``used`` are the blocks
        that are held on each replica, ``pool_blocks`` those of all pools; ``at`` is now in Unix seconds."""
        if self._rows_s is None or not 0 <= now_s - self._rows_s < ROWS_PERIOD_S:
            self._rows_s, rows = now_s, list(self._made(requests, own_parts(requests, used), now_s))
            tenant, since = self._crowding.look(rows, pool_blocks, at) or ("", None)
            self._rows = [
                structs.replace(row, crowds_since=since) if row.tenant == tenant and row.tenants == 1 else row
                for row in rows
            ]
        return self._rows

    def _made(
        self, requests: Iterable[Tracked], parts: Mapping[str | None, float], now_s: float
    ) -> Iterator[TenantUse]:
        sums = {name: _Sum(real=True) for name in (*self.rate.tenants, *self._refused_by.tenants)}
        for request in requests:
            spec = request.generation.spec
            used = sums.setdefault(spec.tenant, _Sum())
            used.add(request, parts.get(request.generation.replica, 1.0))
            used.prompts.append(len(spec.prompt))
        ordered = sorted(sums.items(), key=lambda item: (*(-each for each in item[1].weight), item[0]))
        taken, refused = self._taken.total(now_s), self._refused.total(now_s)
        for name, used in ordered[:MOST_ROWS]:
            row = TenantUse(
                tenant=name,
                running=used.running,
                waiting=used.waiting,
                kv_blocks=round(used.kv_blocks),
                prompt_tokens_p50=median(used.prompts) if used.prompts else None,
                requests_per_min=self.rate.count(name, now_s) if used.real else None,
                refused_per_min=self._refused_by.count(name, now_s) if used.real else None,
            )
            taken -= row.requests_per_min or 0
            refused -= row.refused_per_min or 0
            yield row
        others = ordered[MOST_ROWS:]
        if others:
            counted = any(used.real for _, used in others)
            yield TenantUse(
                tenant=others[0][0] if len(others) == 1 else "",
                tenants=len(others),
                running=sum(used.running for _, used in others),
                waiting=sum(used.waiting for _, used in others),
                kv_blocks=round(sum(used.kv_blocks for _, used in others)),
                # Two windows whose edges are not quite the same.
                requests_per_min=max(0, taken) if counted else None,
                refused_per_min=max(0, refused) if counted else None,
            )


def own_parts(requests: Iterable[Tracked], used: Mapping[str, int | None]) -> dict[str | None, float]:
    """Which part of a request's blocks is its own, by replica. A block that several share is in the table of
    each and used once; whose they are is not told, so it is taken for the same with all of a replica."""
    held = Counter[str | None]()
    for request in requests:
        held[request.generation.replica] += request.blocks
    return {
        replica: there / blocks
        for replica, blocks in held.items()
        if (there := used.get(replica or "")) is not None and there < blocks
    }


def replica_use(
    replica: str, requests: Sequence[Tracked], used: int | None
) -> tuple[list[TenantUse], TierUse]:
    """Of the requests of one replica: the tenants with the most blocks, and the batch tier."""
    part = own_parts(requests, {replica: used}).get(replica, 1.0)
    sums: dict[str, _Sum] = {}
    batch = _Sum()
    for request in requests:
        spec = request.generation.spec
        sums.setdefault(spec.tenant, _Sum()).add(request, part)
        if spec.tier == "batch":
            batch.add(request, part)
    ordered = sorted(sums.items(), key=lambda item: (*(-each for each in item[1].weight), item[0]))
    rows = [
        TenantUse(tenant=name, running=each.running, waiting=each.waiting, kv_blocks=round(each.kv_blocks))
        for name, each in ordered[:MOST_REPLICA_ROWS]
    ]
    return rows, TierUse(running=batch.running, waiting=batch.waiting, kv_blocks=round(batch.kv_blocks))
