"""What the families of the metrics page have in common: vLLM's labels, and that the unknown has no sample."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

#: Of what is told of each replica; vLLM's word for one is ``engine``.
REPLICA_LABELS = ("model_name", "engine")


def add_known(family: Any, labels: Sequence[str], value: float | None) -> None:
    """What is unknown has no sample: missing is not zero."""
    if value is not None:
        family.add_metric(labels, value)


def gauges_of_fleet(model: str, values: Iterable[tuple[str, str, float | None]]) -> Iterator[Metric]:
    """A gauge of one number for each name, help and value."""
    for name, help_text, value in values:
        family = GaugeMetricFamily(name, help_text, labels=("model_name",))
        add_known(family, [model], value)
        yield family
