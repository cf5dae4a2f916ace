"""Hours of a healthy simulated fleet under the doctor's eyes, seed after seed; whatever is found is a false
alarm.

``python tests/console/diagnosis/healthy_hours.py --seeds 10`` prints one line a seed and ends with status 1
where something was found. ``--per-s`` makes the hours busier: 0.05 requests a second leave a fleet mostly
idle, 2.0 keep it at work all the time.
"""

import argparse
import asyncio
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from support.incidents import Ward
from support.simulated_fleet import Arrival, SimulatedBench, run, spec

HOUR_S = 3_600
#: What users of one product begin their prompts with.
PREFIX = 600


def day_traffic(random: Random, per_s: float, seconds: float) -> Iterator[Arrival]:
    """Requests of a dozen tenants and both tiers, a part of them beginning alike; busier and calmer times,
    and now and then several at once."""
    at_s, number = 0.0, 0
    while at_s < seconds:
        wave = 1.0 + 0.6 * math.sin(2 * math.pi * at_s / 1_200.0)
        at_s += random.expovariate(per_s * wave)
        for _ in range(random.randint(2, 4) if random.random() < 0.05 else 1):
            number += 1
            prompt = min(6_000, 50 + int(random.lognormvariate(6.2, 0.8)))
            shared = random.random() < 0.5
            yield Arrival(
                at_s,
                spec(
                    PREFIX + prompt if shared else prompt,
                    random.randint(4, 60),
                    first=0 if shared else 10_000 * number,
                    tenant=f"tenant-{int(random.paretovariate(1.2)) % 12}",
                    tier="batch" if random.random() < 0.2 else "interactive",
                ),
            )


def healthy(seed: int, per_s: float, seconds: int) -> Ward:
    """One fleet of two replicas for so long; what was found is in the ward."""

    async def drill(bench: SimulatedBench) -> Ward:
        ward = Ward(bench)
        arrivals = asyncio.create_task(bench.play(day_traffic(Random(seed), per_s, seconds)))
        await ward.seconds(seconds)
        await arrivals
        ward.close()
        return ward

    with tempfile.TemporaryDirectory() as directory:
        return run(drill, Path(directory), replicas=2, seed=seed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=1, help="how many (default 1)")
    parser.add_argument("--per-s", type=float, default=0.05, help="requests a second (default 0.05)")
    parser.add_argument("--seconds", type=int, default=HOUR_S, help="simulated seconds (default an hour)")
    parser.add_argument("--nice", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    os.nice(options.nice)
    found = 0
    for seed in range(options.seed, options.seed + options.seeds):
        ward = healthy(seed, options.per_s, options.seconds)
        findings = {each.id: (at_s, each.words) for at_s, now in reversed(ward.found) for each in now}
        print(
            f"seed {seed}: {len(ward.found)} looks, {len(ward.bench.steps())} steps, {len(findings)} findings"
        )
        for name, (at_s, words) in findings.items():
            print(f"  at {at_s:.0f}s {name}: {words}", flush=True)
        found += len(findings)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
