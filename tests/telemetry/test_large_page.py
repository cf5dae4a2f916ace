"""The metrics of a large fleet are a long page: others have the event loop while it is made."""

import asyncio
from pathlib import Path

from infer_engine.protocol import GatewayStatus
from infer_engine.telemetry.prometheus import MOST_SAMPLES_AT_ONCE, Metrics
from support.simulated_fleet import SimulatedBench, run, spec

REPLICAS = 80


def test_it_is_made_in_turns_with_others(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        metrics = Metrics(bench.fleet, "none", lambda: GatewayStatus())
        await bench.finished(bench.fleet.submit(spec(16, 20)))
        whole, content_type = metrics.exposition("")
        families = whole.count(b"# TYPE ")
        assert whole.count(b"\n") > MOST_SAMPLES_AT_ONCE
        making = asyncio.create_task(metrics.page(""))
        turns = 0
        while not making.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= families
        made, its_type = making.result()
        assert its_type == content_type
        names = [[line.split(b" ")[0] for line in page.splitlines()] for page in (whole, made)]
        assert names[0] == names[1]

    run(drill, tmp_path, replicas=REPLICAS)
