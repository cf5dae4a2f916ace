"""Taking a replica out of service and back: facts for the judgement in ``drain``, and doing what it
allows."""

from collections.abc import Mapping
from dataclasses import dataclass

from infer_engine.fleet.cancelling import cancel_all
from infer_engine.fleet.drain import DrainFacts, RunningFact, judge, mode_of
from infer_engine.fleet.drain_effect import predict
from infer_engine.fleet.generation import Refusal
from infer_engine.fleet.health import health
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.measures import Measures
from infer_engine.fleet.moving import Moving
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.serving import is_bound
from infer_engine.fleet.state_change import set_state
from infer_engine.fleet.tracked import Tracked
from infer_engine.fleet.unknown import unknown_replica
from infer_engine.protocol import Drain, DrainMode, Effect, Problem
from infer_engine.replica.handle import ReplicaHandle


@dataclass(slots=True)
class Draining:
    handles: Mapping[str, ReplicaHandle]
    ledger: Ledger
    placer: Placer
    moving: Moving
    measures: Measures

    def predict(self, replica: str, command: Drain) -> Effect:
        """Refusal when the drain may not begin."""
        facts = self._facts(self._handle(replica))
        denied = judge(facts, command)
        if denied is not None:
            raise Refusal(
                Problem(
                    status=denied.status,
                    code=denied.code,
                    title=denied.title,
                    detail=denied.detail,
                    field=denied.field,
                    numbers=denied.numbers or {},
                ),
                retry_after_s=denied.retry_after_s,
            )
        return predict(facts, command)

    def drain(self, replica: str, command: Drain) -> None:
        """Close admission now and ask for the queue back; asking twice changes nothing but the mode, and that
        only when one is given."""
        self.predict(replica, command)
        handle = self._handle(replica)
        # Closed for a restart until now: from now on it is meant to stay closed.
        handle.reopens = False
        mode = self.mode(replica, command) if handle.state == "ready" else command.mode
        if handle.state == "ready":
            handle.cordoned = True
            handle.set_admission(admit=False)
            set_state(handle, self.ledger.feed, "draining", actor=command.actor)
        if mode == "migrate":
            self.moving.empty(replica)
        if mode == "cancel":
            self.cancel_running(replica, actor=command.actor)

    def mode(self, replica: str, command: Drain) -> DrainMode:
        """What becomes of those that run there if it is drained now."""
        return mode_of(self._facts(self._handle(replica)), command)

    def cancel_running(self, replica: str, *, actor: str = "") -> int:
        """Cancel what runs there, how many that are (0 while its queue is still coming back: then what runs
        is cancelled once it has, and the queue is not)."""
        handle = self._handle(replica)
        if handle.awaits_withdrawn:
            handle.cancel_when_withdrawn = True
            return 0
        return cancel_all(self.ledger, handle, actor=actor)

    def predict_undrain(self, replica: str) -> Effect:
        handle = self._handle(replica)
        if not handle.cordoned:
            return Effect(summary=[f"{replica} is not drained ({handle.state}): nothing will change"])
        held = len(self.placer.held)
        summary = [f"{replica} takes requests again"]
        if handle.state not in ("draining", "drained"):
            summary = [f"{replica} is {handle.state}; once it is ready it takes requests again"]
        if held:
            summary.append("1 held request" if held == 1 else f"{held} held requests")
            summary[-1] += " can be placed"
        elsewhere = sum(
            request.state == "waiting" and request.generation.replica not in (None, replica)
            for request in self.ledger.live.values()
        )
        if elsewhere:
            summary.append(
                "1 request that waits on another replica stays there"
                if elsewhere == 1
                else f"{elsewhere} requests that wait on other replicas stay there"
            )
        return Effect(summary=summary, numbers={"held": float(held), "waiting_elsewhere": float(elsewhere)})

    def undrain(self, replica: str, *, actor: str = "") -> None:
        """Open admission again; a replica that is not drained stays as it is."""
        handle = self._handle(replica)
        handle.cordoned = handle.reopens = False
        self.moving.keep(replica)
        if handle.state in ("draining", "drained"):
            handle.set_admission(admit=True)
            set_state(handle, self.ledger.feed, "ready", actor=actor)
            self.placer.flush_held()

    def close_for_restart(self, replica: str, command: Drain) -> None:
        """``drain`` that nobody is to find in the replica's spec: it opens again by itself."""
        handle = self._handle(replica)
        reopens = not handle.cordoned
        self.drain(replica, command)
        handle.reopens = reopens

    def reopen_after_restart(self, replica: str) -> None:
        """What ``close_for_restart`` closed takes requests again, at once or when it has loaded."""
        handle = self.handles.get(replica)
        if handle is not None and handle.reopens:
            handle.reopens = False
            self.undrain(replica)

    def observed(self, handle: ReplicaHandle) -> None:
        """Drained is what a replica says after its admission was closed: nothing runs, nothing waits, no
        block held."""
        observation = handle.observation
        if handle.state != "draining" or observation is None:
            return
        empty = not observation.rows and observation.kv_used == 0 and not self.ledger.on(handle.id)
        if empty and not observation.admission_open:
            set_state(handle, self.ledger.feed, "drained")

    def _handle(self, replica: str) -> ReplicaHandle:
        handle = self.handles.get(replica)
        if handle is None:
            raise unknown_replica(replica)
        return handle

    def _facts(self, handle: ReplicaHandle) -> DrainFacts:
        requests = self.ledger.on(handle.id)
        waiting = [request for request in requests if request.state == "waiting"]
        others = self.moving.others(handle)
        block_size = handle.info.block_size if handle.info else 1
        draining = [
            each.id for each in self.handles.values() if each is not handle and each.state == "draining"
        ]
        leavers = {leaver.id: leaver for leaver in self.moving.leavers(handle)}
        others_used, others_total = _kv(others)
        fleet_used, fleet_total = _kv([*others, handle])
        return DrainFacts(
            replica=handle.id,
            state=handle.state,
            running=[
                RunningFact(request.id, _tokens_left(request), leavers.get(request.id))
                for request in requests
                if request.state == "running"
            ],
            bound=sum(is_bound(request, others) for request in requests if request.state == "running"),
            waiting=len(waiting),
            waiting_blocks=sum(request.needs_blocks(block_size) for request in waiting),
            tokens_per_s=self.measures.of[handle.id].token_rate.per_s(self.ledger.clock()),
            other_ready=[each.id for each in others],
            others_kv_used=others_used,
            others_kv_total=others_total,
            fleet_kv_used=fleet_used,
            fleet_kv_total=fleet_total,
            others_draining=draining,
            rooms=self.moving.rooms(handle),
            prefill_tokens_per_s=handle.info.prefill_tokens_per_s if handle.info else None,
            stalled=health(handle, self.ledger.clock(), has_work=bool(requests)) == "stalled",
        )


def _kv(handles: list[ReplicaHandle]) -> tuple[int, int]:
    """Blocks used and in all, of those that are loaded."""
    loaded = [(handle.kv_used or 0, handle.info.kv_blocks) for handle in handles if handle.info is not None]
    return sum(used for used, _ in loaded), sum(total for _, total in loaded)


def _tokens_left(request: Tracked) -> int:
    return max(0, request.generation.spec.max_tokens - len(request.generation.emitted))
