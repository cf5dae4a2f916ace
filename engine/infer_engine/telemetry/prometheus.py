"""``/metrics``: vLLM's names for the signals that vLLM has, so that its dashboards and routers work, and our
own.

Gauges are computed when they are asked for, from the same status that the console sees, so none can go stale.
Counters are the fleet's own; histograms are filled by its samples. Latency histograms leave test traffic
out, counters of work done do not. What is unknown has no sample: missing is not zero.

vLLM's labels are kept: ``engine`` is the replica's id.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation
from infer_engine.protocol import GatewayStatus
from infer_engine.telemetry.event_counts import EventCounts
from infer_engine.telemetry.fleet_families import fleet_families
from infer_engine.telemetry.gen_ai import GenAi
from infer_engine.telemetry.latencies import Latencies
from infer_engine.telemetry.replica_families import replica_counters, replica_gauges
from infer_engine.telemetry.vllm_ended import VllmEnded

#: Lines that are written without leaving the event loop: some 20 ms.
MOST_SAMPLES_AT_ONCE = 2_000


class _Collected(CollectorRegistry):
    """Families that are there already, where an encoder wants a registry."""

    def __init__(self) -> None:
        super().__init__()
        self.families: list[Metric] = []

    def collect(self) -> Iterator[Metric]:
        return iter(self.families)


class Metrics(Collector):
    """One fleet's metrics. Costs a histogram increment per token, and one status per scrape."""

    def __init__(
        self,
        fleet: Fleet,
        model_name: str,
        gateway: Callable[[], GatewayStatus],
        others: Sequence[Collector] = (),
    ) -> None:
        """``others`` have a place on the page too."""
        self._fleet = fleet
        self._gateway = gateway
        self._model = model_name
        self._latencies = Latencies(model_name)
        self._counts = EventCounts(model_name)
        self._gen_ai = GenAi(model_name)
        self._ended = VllmEnded(model_name)
        self._registry = CollectorRegistry(auto_describe=False)
        for each in (self, *others):
            self._registry.register(each)
        fleet.measures.subscribe(self._latencies.sampled)
        fleet.feed.subscribe(self._counts.happened)
        fleet.on_finish(self._finished)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that ``accept`` (the HTTP header) asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    async def page(self, accept: str) -> tuple[bytes, str]:
        """The same for an event loop that others need meanwhile: of a large fleet the page is megabytes, so
        it is made family by family, and written in a thread."""
        collected = _Collected()
        for family in self._registry.collect():
            collected.families.append(family)
            await asyncio.sleep(0)
        encode, content_type = choose_encoder(accept)
        if sum(len(family.samples) for family in collected.families) <= MOST_SAMPLES_AT_ONCE:
            return encode(collected), content_type
        return await asyncio.to_thread(encode, collected), content_type

    def collect(self) -> Iterator[Metric]:
        status = self._fleet.status()
        measures = self._fleet.measures.of
        yield from replica_gauges(self._model, status.replicas)
        yield from replica_counters(self._model, measures)
        yield from self._counts.moves()
        yield from self._latencies.collect(measures)
        yield from self._ended.collect()
        yield from self._gen_ai.collect()
        yield from self._counts.rejections()
        yield from fleet_families(self._model, status.fleet, self._gateway(), len(self._fleet.held_rows()))

    def _finished(self, generation: Generation) -> None:
        self._gen_ai.ended(generation, self._fleet.now())
        self._ended.ended(generation)
