"""All that is measured of ourselves, part by part."""

from collections.abc import Callable
from dataclasses import dataclass

from infer_engine.benchmark import (
    batching,
    connections,
    consoles,
    long_prompt,
    prefix_hit,
    routing,
    served,
    start,
    step_time,
    stragglers,
)
from infer_engine.benchmark.results import Result
from infer_engine.benchmark.setup import Setup


@dataclass(frozen=True, slots=True)
class Part:
    """``expected_s`` at three repeats, on two cores."""

    name: str
    what: str
    expected_s: float
    measure: Callable[[Setup], list[Result]]


PARTS: tuple[Part, ...] = (
    Part("workload", "16 streaming clients over HTTP, and one request alone", 75, served.measure),
    Part("batching", "decode at batch 1 to 32 beside the roofline", 150, batching.measure),
    Part("scheduler", "planning and telling of a step, without a model", 30, step_time.measure),
    Part("router", "one decision at 1,000 replicas and 100,000 indexed blocks", 15, routing.measure),
    Part("chunked", "a long prompt beside decoding streams, in chunks and whole", 110, long_prompt.measure),
    Part("prefix_hit", "a shared prefix, cold and cached", 35, prefix_hit.measure),
    Part("stragglers", "continuous and static batching", 130, stragglers.measure),
    Part("start", "two replicas ready, second start", 40, start.measure),
    Part("consoles", "four consoles attached and none", 210, consoles.measure),
    Part("connections", "2,000 streams of 2 tokens/s from a simulated fleet", 130, connections.measure),
)
