"""Counters that no status has, out of the fleet's events: requests that were refused, requests that moved."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from infer_engine.fleet.feed import FeedItem
from infer_engine.protocol import Event
from infer_engine.telemetry.families import REPLICA_LABELS


class EventCounts:
    def __init__(self, model: str) -> None:
        self._model = model
        self._rejected: Counter[str] = Counter()
        #: By the replica that requests left, and why.
        self._moved: Counter[tuple[str, str]] = Counter()
        self._moved_tokens: Counter[tuple[str, str]] = Counter()

    def happened(self, item: FeedItem) -> None:
        if isinstance(item, Event) and item.kind == "reject":
            self._rejected[item.reason or "unknown"] += 1
        elif isinstance(item, Event) and item.kind == "move" and item.to_replica is not None:
            left = (item.replica or "unknown", item.reason or "unknown")
            self._moved[left] += 1
            self._moved_tokens[left] += item.tokens or 0

    def moves(self) -> Iterator[Metric]:
        for name, help_text, counts in (
            ("infer_moves", "Requests that went on at another place.", self._moved),
            ("infer_move_recompute_tokens", "Tokens to compute again for it.", self._moved_tokens),
        ):
            family = CounterMetricFamily(name, help_text, labels=(*REPLICA_LABELS, "reason"))
            for (replica, reason), count in sorted(counts.items()):
                family.add_metric([self._model, replica, reason], count)
            yield family

    def rejections(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "infer_requests_rejected", "Requests refused.", labels=("model_name", "code")
        )
        for code, count in self._rejected.items():
            family.add_metric([self._model, code], count)
        yield family
