"""Injected test traffic: tagged synthetic, first to be preempted, held back while real requests wait, capped,
and gone by itself when real users suffer."""

import time
from collections import Counter
from collections.abc import Callable

from msgspec import structs

from infer_engine.control.demand import Demand
from infer_engine.control.forecast import forecast
from infer_engine.control.guard_rail import RAILS, longest_wait_s, suffering
from infer_engine.control.injection import Injection
from infer_engine.control.operations import Handle, OperationFailed, Operations
from infer_engine.control.prompts import Prompts
from infer_engine.control.real_ttft import RealTtft
from infer_engine.control.traffic_effect import TrafficEffect
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, misfit, refuse
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import Effect, Inject, Operation, StopInjection, TrafficStatus

MAX_IN_FLIGHT = 64
#: From then on how fast a simulation goes is measured.
PACE_AFTER_S = 2.0
#: No request of a profile takes more tokens, prompt and answer together, whatever the model could.
MOST_ROOM_TOKENS = 8_192


class Injector:
    """One injection at a time, run as an operation. ``wall`` gives Unix seconds."""

    def __init__(
        self,
        fleet: Fleet,
        tokenizer: Tokenizer,
        operations: Operations,
        context_length: int,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._fleet = fleet
        self._prompts = Prompts(tokenizer)
        self._stop_ids = tuple(sorted(tokenizer.stop_ids))
        self._operations = operations
        self._context_length = context_length
        self._wall = wall
        self._status = TrafficStatus(rails=RAILS)
        #: The one that runs, or the last one.
        self._injection: Injection | None = None
        self._operation: Operation | None = None
        self._real_ttft = RealTtft(fleet.measures, fleet.now)
        self._effect = TrafficEffect(fleet.measures, fleet.now, fleet.capacity.kv_used_ratio)
        fleet.on_finish(self._request_ended)

    def status(self) -> TrafficStatus:
        injection = self._injection
        if injection is None:
            return self._status
        return structs.replace(
            self._status,
            sent=injection.sent,
            in_flight=len(injection.in_flight),
            finished=injection.finished,
            failed=injection.failed,
            not_sent=injection.not_sent,
            held_back=self._status.running and injection.held_back,
            ends_at=self._ends_at(injection) if self._status.running else self._status.ends_at,
        )

    def _ends_at(self, injection: Injection) -> float | None:
        """Unix seconds, to the second: a simulation that cannot keep up takes longer than its speed says."""
        began_at = self._status.started_at
        if not self._fleet.is_simulated or began_at is None:
            return self._status.ends_at
        now_s, now = self._fleet.now(), self._wall()
        gone_s, took_s = now_s - injection.began_s, now - began_at
        pace = gone_s / took_s if gone_s > 0 and took_s >= PACE_AFTER_S else self._fleet.pace
        return float(round(now + max(0.0, injection.end_s - now_s) / pace))

    def predict(self, command: Inject) -> Effect:
        """Refusal when it is not to be had: what is asked does not fit (422), traffic runs already or no
        replica is ready (409)."""
        demand = Demand.of(command)
        under_way = self._operations.running("inject")
        if under_way is not None:
            raise refuse(
                409, "injection_running", "Test traffic is running already.", f"It is {under_way.id}."
            )
        if not self._fleet.capacity.ready_replicas():
            states = Counter(self._fleet.replica(each).state for each in self._fleet.replica_ids())
            raise refuse(
                409,
                "no_ready_replica",
                "No replica is ready to take requests.",
                f"There are {', '.join(f'{count} {state}' for state, count in states.items())}.",
                numbers={"ready": 0},
            )
        most = self._most_in_flight()
        if demand.concurrency is not None and demand.concurrency > most:
            raise misfit("concurrency", f"at most {most} may be in flight here, got {demand.concurrency}.")
        self._check_room(demand)
        return forecast(
            self._fleet, self._prompts, demand, room_tokens=self._room_tokens(), most_in_flight=most
        )

    def start(self, command: Inject) -> Operation:
        """Call ``predict`` first: it refuses."""
        demand = Demand.of(command)
        now = self._wall()
        ends_at = now + demand.duration_s / self._fleet.pace
        most = self._most_in_flight()
        operation = self._operations.start(
            "inject",
            "fleet",
            lambda handle: self._work(handle, demand, most),
            actor=command.actor,
            reason=command.reason,
            deadline_at=ends_at,
            params={
                "profile": demand.profile,
                "rate_per_s": demand.rate_per_s,
                "concurrency": demand.concurrency,
                "trace_requests": None if demand.trace is None else len(demand.trace),
                "duration_s": demand.duration_s,
                "tier": demand.tier,
                "seed": demand.seed,
            },
        )
        self._operation = operation
        self._injection = None
        self._real_ttft.begin()
        self._effect.begin()
        users, test = self._effect.now()
        self._status = TrafficStatus(
            running=True,
            profile=demand.profile,
            tier=demand.tier,
            rate_per_s=demand.rate_per_s,
            started_at=now,
            ends_at=ends_at,
            concurrency=demand.concurrency,
            seed=demand.seed,
            trace_requests=None if demand.trace is None else len(demand.trace),
            most_in_flight=most,
            before=self._effect.before,
            users=users,
            test=test,
            rails=RAILS,
        )
        self._fleet.feed.event(
            "traffic",
            reason="started",
            tier=demand.tier,
            message=f"test traffic: {demand.describe()}",
            synthetic=True,
        )
        return operation

    def predict_stop(self) -> Effect:
        if not self._status.running:
            return Effect(summary=["no test traffic is running: nothing will change"])
        status = self.status()
        return Effect(
            summary=[f"no more test requests; those in flight ({status.in_flight}) are cancelled"],
            numbers={"in_flight": float(status.in_flight), "sent": float(status.sent)},
        )

    def stop(self, command: StopInjection) -> Operation:
        """End the traffic now: nothing more is sent, what is in flight is cancelled."""
        under_way = self._operations.running("inject")
        if under_way is None:
            message = "no test traffic was running"
        else:
            self._end(under_way.id, "stopped by an operator")
            self._operations.cancel(under_way.id, "stopped by an operator")
            message = f"{under_way.id} stopped after {self.status().sent:,} requests"
        return self._operations.record(
            "inject-stop", "fleet", message, actor=command.actor, reason=command.reason
        )

    # --- the traffic itself --------------------------------------------------------------------------------

    async def _work(self, handle: Handle, demand: Demand, most_in_flight: int) -> None:
        injection = self._injection = Injection(
            self._fleet,
            self._prompts,
            demand,
            stop_ids=self._stop_ids,
            room_tokens=self._room_tokens(),
            most_in_flight=most_in_flight,
            tend=self._watch_real_users,
            progress=lambda: handle.update(
                done=injection.finished,
                total=injection.planned(),
                message=self._progress(),
                deadline_at=self._ends_at(injection),
            ),
        )
        try:
            await injection.run()
        except OperationFailed as failure:
            self._end(handle.id, str(failure))
            raise
        finally:
            self._end(handle.id, None)

    def _end(self, operation_id: str, because: str | None) -> None:
        """Once per injection, whoever is first: its work, or the operator who stops it before its work
        began."""
        if self._operation is None or self._operation.id != operation_id:
            return
        self._operation = None
        message = f"test traffic ended: {because or 'its time was over'}; {self._progress()}"
        if self._injection is not None:
            self._injection.cancel_all()
        users, test = self._effect.now()
        self._status = structs.replace(
            self._status, running=False, stopped_because=because, users=users, test=test, user_wait_s=None
        )
        self._fleet.feed.event("traffic", reason="stopped", message=message, synthetic=True)

    def _request_ended(self, generation: Generation) -> None:
        if generation.spec.synthetic and self._injection is not None:
            self._injection.woken.set()

    def _watch_real_users(self) -> None:
        users, test = self._effect.now()
        waiting, live = self._fleet.rows(None, "waiting"), self._fleet.live_users()
        self._status = structs.replace(
            self._status, users=users, test=test, user_wait_s=longest_wait_s(waiting), users_live=live
        )
        because = suffering(
            waiting,
            self._real_ttft.p95_s(),
            self._real_ttft.baseline_s,
            users.kv_used_ratio if live else None,
        )
        if because is not None:
            raise OperationFailed(because)

    def _progress(self) -> str:
        status = self.status()
        skipped = f", {status.not_sent:,} not sent (too much waits)" if status.not_sent else ""
        return f"{status.sent:,} sent, {status.finished:,} finished, {status.failed:,} failed{skipped}"

    # --- how much it may be --------------------------------------------------------------------------------

    def _most_in_flight(self) -> int:
        """More than real replicas are asked for at once: simulated ones hurt nobody."""
        return MAX_IN_FLIGHT * (len(self._fleet.replica_ids()) if self._fleet.is_simulated else 1)

    def _pool_tokens(self) -> int | None:
        """Of the smallest pool."""
        return min(
            (each.kv_blocks * each.block_size for each in self._fleet.capacity.runners()), default=None
        )

    def _room_tokens(self) -> int:
        """Tokens that a request of a profile may take: a fraction of the smallest pool, and the model's
        context if that is not too long for test traffic."""
        pool = self._pool_tokens()
        fraction = [] if pool is None else [pool // 4]
        return max(64, min([self._context_length, MOST_ROOM_TOKENS, *fraction]))

    def _check_room(self, demand: Demand) -> None:
        """A recording may ask for more, but not for what could never be answered."""
        most = min(self._context_length, self._pool_tokens() or self._context_length)
        for index, each in enumerate(demand.trace or []):
            if each.prompt_tokens + each.output_tokens > most:
                raise misfit(
                    f"trace[{index}]",
                    f"prompt and answer together may have {most} tokens here, got "
                    f"{each.prompt_tokens + each.output_tokens}.",
                )
