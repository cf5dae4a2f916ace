"""What the fleet shows of itself: documents and frames, computed when asked for, so nothing shown is
stale."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from infer_engine.fleet.health import LIVE_STATES, has_work, health
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.measures import Measures, itl_figures, queue_figures, ttft_figures
from infer_engine.fleet.oldest import oldest, rest
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.rows import frame_row, live_row, observed_row
from infer_engine.fleet.specs import FLEET, Specs
from infer_engine.fleet.tenant_use import TenantUses, replica_use
from infer_engine.fleet.timelines import Timelines
from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import (
    Fleet,
    Kv,
    Replica,
    ReplicaFrame,
    RequestRow,
    RequestState,
    ScalingStatus,
    Simulation,
    Slo,
    Status,
    StepMakeup,
    TenantUse,
    Totals,
)
from infer_engine.replica.handle import ReplicaHandle, limits_of
from infer_engine.replica.messages import Observation, StepReport
from infer_engine.settings import ServerSettings


@dataclass(slots=True)
class Views:
    settings: ServerSettings
    handles: Mapping[str, ReplicaHandle]
    ledger: Ledger
    placer: Placer
    measures: Measures
    timelines: Timelines
    #: How the simulation goes; None where nothing is simulated.
    simulation: Callable[[], Simulation] | None = None
    scaling: Callable[[], ScalingStatus | None] = lambda: None
    #: What is wanted, and which version of it.
    specs: Specs | None = None
    uses: TenantUses | None = None

    # --- replicas ------------------------------------------------------------------------------------------

    def replica(self, replica: str) -> Replica:
        """As of the newest message. KeyError when there is none of that id."""
        handle = self.handles[replica]
        requests = self.ledger.on(replica)
        running = sum(request.state == "running" for request in requests)
        newest = handle.report if handle.report_is_newer else handle.observation
        return self._replica(handle, newest, handle.limits, running, len(requests) - running, handle.report)

    def frame(self, replica: str, *, rows: bool = True) -> ReplicaFrame:
        """All of it from one observation (``step``, ``at``): status, and unless they are not wanted rows,
        order, and blocks where they were asked for. KeyError when there is no such replica."""
        handle = self.handles[replica]
        observation = handle.observation
        if observation is None or handle.observed_at is None:
            return ReplicaFrame(
                replica=replica,
                step=0,
                at=self.ledger.feed.wall(),
                status=self.replica(replica),
                rows=[],
                order=[],
            )
        running = sum(row.state == "running" for row in observation.rows)
        status = self._replica(
            handle,
            observation,
            limits_of(observation),
            running,
            len(observation.rows) - running if observation.waiting is None else observation.waiting,
            handle.observed_report,
        )
        if not rows:
            return ReplicaFrame(replica=replica, step=observation.step, at=handle.observed_at, status=status)
        observed = self._observed_rows(observation)
        return ReplicaFrame(
            replica=replica,
            step=observation.step,
            at=handle.observed_at,
            status=status,
            rows=observed,
            order=[row.id for row in observed],
            blocks=handle.block_runs,
        )

    def _observed_rows(self, observation: Observation) -> list[RequestRow]:
        now_s = self.ledger.clock()
        rows: list[RequestRow] = []
        for core in observation.rows:
            request = self.ledger.live.get(core.id)
            if request is not None:
                rows.append(frame_row(request, core, now_s))
                continue
            ended = self.ledger.row(core.id)
            if ended is not None:  # it ended since; in this frame it has not yet
                rows.append(observed_row(ended, core))
        return rows

    def _replica(
        self,
        handle: ReplicaHandle,
        numbers: StepReport | Observation | None,
        limits: dict[str, int],
        running: int,
        waiting: int,
        report: StepReport | None,
    ) -> Replica:
        now_s = self.ledger.clock()
        measures = self.measures.of[handle.id]
        requests = self.ledger.on(handle.id)
        live = handle.state in LIVE_STATES
        info = handle.info
        foreign = info.foreign if info else None
        theirs = handle.id in self.settings.upstream_ids
        observation = handle.observation
        tenants, batch = replica_use(handle.id, requests, numbers.kv_used if numbers else None)
        return Replica(
            id=handle.id,
            state=handle.state,
            health=health(handle, now_s, has_work=has_work(handle, requests)),
            step_age_s=None if handle.last_step_s is None else now_s - handle.last_step_s,
            running=running if live else None,
            waiting=waiting if live else None,
            queue_wait_s=queue_figures([measures.queue_wait], requests, now_s),
            kv=Kv(
                block_size=info.block_size if info else None,
                total=info.kv_blocks if info else None,
                used=numbers.kv_used if numbers else None,
                cached=numbers.kv_cached if numbers else None,
                free=numbers.kv_free if numbers else None,
                admit_limit=limits.get("admit_limit"),
                batch_limit=limits.get("batch_limit"),
                bytes_per_token=(info.kv_bytes_per_token or None) if info else None,
                host_total=observation.host_total if observation else None,
                host_used=observation.host_used if observation else None,
            ),
            tokens_per_s=measures.token_rate.per_s(now_s) if live else None,
            ttft_s=ttft_figures([measures.ttft], requests, now_s),
            itl_s=itl_figures([measures.itl], now_s),
            ttft_split_s=self.timelines.figures(handle.id),
            preemptions=measures.preemptions,
            prefix_hit_ratio=measures.prefix_hit_ratio,
            incarnation=handle.incarnation,
            # That of a server of somebody else is not told.
            pid=None if theirs else handle.pid,
            preemptions_by_mode=dict(measures.preemptions_by_mode),
            max_running=handle.slots,
            limits=limits,
            waiting_reasons=observation.waiting_reasons if observation else {},
            step=None if foreign else _makeup(report, limits),
            load_progress=handle.load_progress,
            preemptions_per_min=float(measures.preemption_rate.total(now_s)) if live else None,
            batch_preemptions_per_min=float(measures.batch_preemption_rate.total(now_s)) if live else None,
            invariant_violations=numbers.invariant_violations if numbers and not foreign else None,
            simulated=info.simulated if info else False,
            device=info.device if info else None,
            dtype=(info.dtype or None) if info else None,
            error=handle.error,
            unready_s=None if handle.unready_since_s is None else max(0.0, now_s - handle.unready_since_s),
            was_ready=handle.was_ready,
            threads=None if theirs else handle.threads,
            weight_bytes=(info.weight_bytes or None) if info else None,
            bandwidth_bytes_per_s=info.bandwidth_bytes_per_s if info else None,
            stalls=measures.stalls,
            prefix_queries_tokens=measures.prefix_queries_tokens,
            prefix_hit_tokens=measures.prefix_hit_tokens,
            tenants=tenants,
            batch=batch if live else None,
            gpu=handle.gpu,
            gpu_trouble=handle.bad,
            launcher="joined" if handle.joined else self.settings.launcher_of(handle.id),
            host=handle.joined.host if handle.joined else None,
            upstream=foreign,
            kept_limits=self.specs.kept_limits(handle.id) if self.specs is not None else {},
            **self._versions(f"replica:{handle.id}"),
        )

    def _versions(self, target: str) -> dict[str, Any]:
        if self.specs is None:
            return {}
        return {
            "spec": self.specs.spec(target),
            "resource_version": self.specs.version(target),
            "generation": self.specs.generation(target),
            "observed_generation": self.specs.observed_generation(target),
        }

    # --- requests ------------------------------------------------------------------------------------------

    def rows(self, replica: str | None, state: RequestState | None) -> list[RequestRow]:
        """Live requests, by replica and in its order, the held ones last; finished ones only when asked for,
        the latest first."""
        if state == "finished":
            ended = self.ledger.tombstones()
            return [row for row in ended if replica is None or row.replica == replica]
        now_s = self.ledger.clock()
        requests: list[Tracked] = []
        for each in self.handles if replica is None else [replica]:
            requests += self._ordered(each, state)
        if replica is None:
            requests += [request for request in self.placer.held if state in (None, request.state)]
        return [live_row(request, now_s) for request in requests]

    def oldest_rows(
        self, limit: int, replica: str | None, state: RequestState | None
    ) -> tuple[list[RequestRow], dict[RequestState, int]]:
        """At most ``limit`` rows, those that wait before those that run, and how many more there are of
        each."""
        if state == "finished":
            ended = self.rows(replica, state)
            return ended[:limit], rest(finished=len(ended) - limit)
        shown, omitted = oldest(self.ledger.live.values(), limit, replica, state)
        now_s = self.ledger.clock()
        return [live_row(request, now_s) for request in shown], omitted

    def held_rows(self) -> list[RequestRow]:
        now_s = self.ledger.clock()
        return [live_row(request, now_s) for request in self.placer.held]

    def _ordered(self, replica: str, state: RequestState | None) -> list[Tracked]:
        """Running first, each part in the replica's order as far as it has told."""
        requests = [each for each in self.ledger.on(replica) if state in (None, each.state)]
        if not requests:
            return []
        observation = self.handles[replica].observation
        told = {row.id: place for place, row in enumerate(observation.rows)} if observation else {}
        last = len(told)
        return sorted(requests, key=lambda each: (each.state != "running", told.get(each.id, last)))

    # --- the whole -----------------------------------------------------------------------------------------

    def version(self, replica: str) -> str | None:
        """Which version of it is wanted."""
        return None if self.specs is None else self.specs.version(f"replica:{replica}")

    def status(self, replicas: list[Replica] | None = None) -> Status:
        """As of now, or of what was told of its ``replicas`` lately."""
        if replicas is None:
            replicas = [self.replica(replica) for replica in self.handles]
        return Status(fleet=self._fleet(), replicas=replicas, totals=self._totals(replicas))

    def _fleet(self) -> Fleet:
        info = self.placer.any_info()
        simulation = self.simulation() if self.simulation is not None else None
        return Fleet(
            name=self.settings.name,
            model=served_model(self.settings),
            # Also before any replica has told so.
            simulated=simulation is not None or (info is not None and info.simulated),
            simulation=simulation,
            scaling=self.scaling(),
            context_length=info.context_length if info else None,
            specs_trouble=self.specs.trouble if self.specs is not None else None,
            slo=_slo(self.settings),
            **self._versions(FLEET),
        )

    def _totals(self, replicas: list[Replica]) -> Totals:
        now_s = self.ledger.clock()
        parts = list(self.measures.of.values())
        requests = list(self.ledger.live.values())
        reasons: Counter[str] = Counter()
        for replica in replicas:
            reasons.update(replica.waiting_reasons)
        reasons.update(request.held_because for request in self.placer.held if request.held_because)
        pools = [(each.kv.used, each.kv.total) for each in replicas if each.state in LIVE_STATES]
        used = sum(used for used, total in pools if used is not None and total)
        total = sum(total for used, total in pools if used is not None and total)
        rates = [each.tokens_per_s for each in replicas if each.tokens_per_s is not None]
        running = sum(request.state == "running" for request in requests)
        return Totals(
            replicas=len(replicas),
            ready=sum(each.state == "ready" for each in replicas),
            running=running,
            waiting=len(requests) - running,
            kv_used_ratio=used / total if total else None,
            tokens_per_s=sum(rates) if rates else None,
            queue_wait_s=queue_figures([part.queue_wait for part in parts], requests, now_s),
            ttft_s=ttft_figures([part.ttft for part in parts], requests, now_s),
            itl_s=itl_figures([part.itl for part in parts], now_s),
            preemptions=self.measures.retired_preemptions + sum(part.preemptions for part in parts),
            ttft_split_s=self.timelines.figures(None),
            waiting_reasons=dict(reasons),
            finished=dict(self.ledger.finished),
            tenants=self._tenants(replicas, requests, now_s),
            taken_requests=self.uses.taken_requests if self.uses is not None else None,
            taken_prompt_tokens=self.uses.taken_prompt_tokens if self.uses is not None else None,
        )

    def _tenants(self, replicas: list[Replica], requests: list[Tracked], now_s: float) -> list[TenantUse]:
        if self.uses is None:
            return []
        return self.uses.rows(
            requests,
            now_s,
            used={each.id: each.kv.used for each in replicas},
            pool_blocks=sum(each.kv.total or 0 for each in replicas),
            at=self.ledger.feed.wall(),
        )


def served_model(settings: ServerSettings) -> str:
    """The name that clients and operators call: of what is simulated, where anything is."""
    deployment = settings.deployment
    return model_name(settings.replica.model) if deployment is None else deployment.model.name


def _slo(settings: ServerSettings) -> Slo | None:
    if settings.slo_ttft_s is None and settings.slo_itl_s is None:
        return None
    return Slo(ttft_p99_s=settings.slo_ttft_s, itl_p99_s=settings.slo_itl_s)


def model_name(model: str) -> str:
    """The model as people call it: a file by its name without the ending, a directory by its own."""
    if "/" in model or model.endswith(".gguf"):
        return PurePath(model).name.removesuffix(".gguf") or model
    return model


def _makeup(report: StepReport | None, limits: dict[str, int]) -> StepMakeup | None:
    if report is None or "token_budget" not in limits:
        return None
    return StepMakeup(
        number=report.step,
        decode_tokens=report.decode_tokens,
        prefill_tokens=report.prefill_tokens,
        token_budget=limits["token_budget"],
        duration_s=report.duration_s,
    )
