"""What a fleet says over MQTT. Never a prompt, a token, a tenant or a request's own name: a broker has many
readers."""

from typing import Any

from infer_engine.protocol import PROTOCOL_VERSION, Event, Replica, Status
from infer_engine.telemetry.mqtt_address import ROOT, topic_name
from infer_engine.telemetry.mqtt_mailbox import Letter

SCHEMA = 1
#: Telemetry that is older than this is not worth delivering.
EXPIRY_S = 5


class Documents:
    """``incarnation`` is this life of the server: Unix milliseconds of its start, so a later life has a
    higher one. ``boot`` tells two lives apart that began in the same millisecond."""

    def __init__(self, fleet: str, incarnation: int, boot: str) -> None:
        self.fleet = topic_name(fleet)
        self._incarnation = incarnation
        self._boot = boot
        self._seq = 0

    def topic(self, *levels: str) -> str:
        return "/".join((ROOT, self.fleet, *levels))

    def _stamp(self, at: float) -> dict[str, object]:
        self._seq += 1
        return {
            "schema": SCHEMA,
            "ts": round(at, 3),
            "seq": self._seq,
            "incarnation": self._incarnation,
            "boot": self._boot,
        }

    def online(self, at: float) -> Letter:
        return self._fleet_state("online", at)

    def offline(self, at: float) -> Letter:
        """Also the will. On the topic of the birth, so that the broker keeps their order; a reader that knows
        of a later incarnation ignores it."""
        return self._fleet_state("offline", at)

    def _fleet_state(self, state: str, at: float) -> Letter:
        return Letter(self.topic("status"), {"state": state, **self._stamp(at)}, qos=1, retain=True)

    def info(self, status: Status, at: float, control: str | None) -> Letter:
        """``control``: where operators reach the server from other machines, None where they cannot."""
        fleet = status.fleet
        payload = {
            **self._stamp(at),
            "protocol": PROTOCOL_VERSION,
            "version": fleet.version,
            "name": fleet.name,
            "model": fleet.model,
            "simulated": fleet.simulated,
            "context_length": fleet.context_length,
            "gateway": fleet.gateway.url,
            "control": control,
            "replicas": len(status.replicas),
            "kv_blocks": _sum(replica.kv.total for replica in status.replicas),
        }
        return Letter(self.topic("info"), payload, qos=1, retain=True)

    def replica_status(self, replica: Replica, at: float) -> Letter:
        payload = {
            "state": replica.state,
            "health": replica.health,
            **self._stamp(at),
            "replica_incarnation": replica.incarnation,
        }
        return Letter(self.topic(topic_name(replica.id), "status"), payload, qos=1, retain=True)

    def replica_gone(self, replica: str) -> Letter:
        """An empty retained message: the broker forgets the topic."""
        return Letter(self.topic(topic_name(replica), "status"), {}, qos=1, retain=True)

    def telemetry(self, status: Status, at: float) -> list[Letter]:
        """One letter for the fleet and one for each replica. Unknown is null, never 0."""
        totals = status.totals
        fleet: dict[str, object] = {
            **self._stamp(at),
            "replicas": totals.replicas,
            "ready": totals.ready,
            "running": totals.running,
            "waiting": totals.waiting,
            "kv_usage_ratio": totals.kv_used_ratio,
            "tokens_per_s": totals.tokens_per_s,
            "ttft_s_p95": totals.ttft_s.p95,
            "itl_s_p95": totals.itl_s.p95,
            "queue_wait_s_p99": totals.queue_wait_s.p99,
            "preemptions": totals.preemptions,
            "waiting_reasons": totals.waiting_reasons,
            "gateway_connections": status.fleet.gateway.connections,
            "gateway_loop_lag_s": status.fleet.gateway.loop_lag_s,
            "simulated": status.fleet.simulated,
        }
        letters = [Letter(self.topic("telemetry"), fleet, expiry_s=EXPIRY_S)]
        return letters + [self._replica_telemetry(replica, at) for replica in status.replicas]

    def _replica_telemetry(self, replica: Replica, at: float) -> Letter:
        kv = replica.kv
        payload: dict[str, object] = {
            **self._stamp(at),
            "replica_incarnation": replica.incarnation,
            "running": replica.running,
            "waiting": replica.waiting,
            "kv_total": kv.total,
            "kv_used": kv.used,
            "kv_cached": kv.cached,
            "kv_free": kv.free,
            "admit_limit": kv.admit_limit,
            "batch_limit": kv.batch_limit,
            "tokens_per_s": replica.tokens_per_s,
            "ttft_s_p95": replica.ttft_s.p95,
            "itl_s_p95": replica.itl_s.p95,
            "queue_wait_s_p99": replica.queue_wait_s.p99,
            "preemptions": replica.preemptions,
            "prefix_hit_ratio": replica.prefix_hit_ratio,
            "step_age_s": replica.step_age_s,
        }
        return Letter(self.topic(topic_name(replica.id), "telemetry"), payload, expiry_s=EXPIRY_S)

    def event(self, event: Event) -> Letter:
        levels = ("event", event.kind)
        if event.replica is not None:
            levels = (topic_name(event.replica), *levels)
        payload: dict[str, Any] = {**self._stamp(event.at), "event_seq": event.seq, "kind": event.kind}
        for name in ("replica", "request", "tier", "reason", "blocks", "tokens", "wait_s", "to_replica"):
            if (value := getattr(event, name)) is not None:
                payload[name] = value
        if event.operation is not None:
            payload["operation"] = event.operation
        if event.synthetic:
            payload["synthetic"] = True
        return Letter(self.topic(*levels), payload, qos=1)


def _sum(numbers: Any) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
