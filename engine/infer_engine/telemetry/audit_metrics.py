"""How long the audit's disk keeps commands waiting, as a histogram on the metrics page."""

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from infer_engine.telemetry.histograms import Histogram


class AuditMetrics(Collector):
    def __init__(self, sync_s: Histogram) -> None:
        self._sync_s = sync_s

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "infer_audit_sync_seconds", "Writing records of the audit and waiting until the disk has them."
        )
        family.add_metric([], self._sync_s.buckets(), self._sync_s.sum)
        yield family
