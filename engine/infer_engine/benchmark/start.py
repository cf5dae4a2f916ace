"""Part ``start``: how long until two replicas take requests, when the machine has done it before."""

from infer_engine.benchmark.engine_server import engine_server
from infer_engine.benchmark.results import Result, result
from infer_engine.benchmark.setup import Setup

REPLICAS = 2
WANTED_S = 8.0


def measure(setup: Setup) -> list[Result]:
    """The first start, which may fetch, prepare and compile, does not count."""
    starts_s: list[float] = []
    for number in range(setup.repeats + 1):
        with engine_server(setup, replicas=REPLICAS) as server:
            setup.say(f"  start {number + 1}: {server.start_s:.1f} s{'' if number else ' (does not count)'}")
            starts_s.append(server.start_s)
    return [
        result(f"{REPLICAS} replicas ready, second start", "s", starts_s[1:], wanted=WANTED_S, bound="most")
    ]
