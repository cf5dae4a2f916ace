"""Microseconds that the core takes per step, by batch size and queue length, with a runner that does nothing.

``python bench/scheduler.py`` prints one JSON document: ``step`` (plan and commit), and what a look costs
(``rows``, ``blocks``, ``reasons``). Medians over steps of several rounds. What the whole step loop takes,
telling included, is part ``scheduler`` of ``infer-console bench engine``.
"""

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

from infer_engine.benchmark.step_time import BLOCKS, NoRunner, loaded, request
from infer_engine.core.observe import block_map, block_runs, rows
from infer_engine.core.scheduler import Scheduler
from infer_engine.protocol import TenantLimits

RUNNING = (16, 64, 256)
WAITING = (100, 10_000)
#: Rows an observation carries of the queue.
SHOWN_WAITING = 200


def blocked(running: int, waiting: int, tenants: int) -> Scheduler:
    """The same with room in the batch and none in the pool: every step looks at as many as it ever does, of
    ``tenants`` that take turns, a third of the prompts being long."""
    scheduler = loaded(running, 0)
    scheduler.set_limits(
        admit_limit=1,
        max_running=running + 100,
        long_prefill_tokens=700,
        tenant_default=TenantLimits(kv_share=0.9),
    )
    for index in range(running, running + waiting):
        scheduler.add(replace(request(index), tenant=f"tenant{index % tenants}"), 0.0)
    return scheduler


def one_step_us(scheduler: Scheduler, runner: NoRunner) -> float:
    """Planning and committing it: what computes it is not the scheduler's."""
    began = perf_counter_ns()
    plan = scheduler.step(0.0)
    planned = perf_counter_ns()
    tokens = runner.execute(plan).tokens
    executed = perf_counter_ns()
    scheduler.commit(tokens, 0.0)
    return (perf_counter_ns() - executed + planned - began) / 1000


def step_us(running: int, waiting: int, steps: int) -> float:
    """Median of one plan and its commit; the queue is kept at its length."""
    scheduler = loaded(running, waiting)
    runner, serial = NoRunner(), running + waiting
    taken: list[float] = []
    for _ in range(steps):
        while len(scheduler.waiting) < waiting:
            scheduler.add(request(serial), 0.0)
            serial += 1
        taken.append(one_step_us(scheduler, runner))
    return statistics.median(taken)


def blocked_step_us(running: int, waiting: int, tenants: int, steps: int) -> float:
    """Median of a step that admits nobody."""
    scheduler, runner = blocked(running, waiting, tenants), NoRunner()
    return statistics.median(one_step_us(scheduler, runner) for _ in range(steps))


def look_us(scheduler: Scheduler, look: Callable[[Scheduler], Any], times: int) -> float:
    taken: list[float] = []
    for _ in range(times):
        began = perf_counter_ns()
        look(scheduler)
        taken.append((perf_counter_ns() - began) / 1000)
    return statistics.median(taken)


def result(measure: str, value: float, wanted: float | None = None) -> dict[str, Any]:
    met = None if wanted is None else value <= wanted
    return {
        "measure": measure,
        "value": round(value, 1),
        "unit": "us",
        "against": None if wanted is None else "bound",
        "ratio": None if wanted is None else round(value / wanted, 3),
        "wanted": wanted,
        "met": met,
    }


def growth(measure: str, value: float, wanted: float) -> dict[str, Any]:
    return {
        "measure": measure,
        "value": round(value, 2),
        "unit": "ratio",
        "against": "itself",
        "ratio": round(value, 2),
        "wanted": wanted,
        "met": value <= wanted,
    }


def measure(steps: int, rounds: int) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    step: dict[tuple[int, int], float] = {}
    for running in RUNNING:
        for waiting in WAITING:
            value = statistics.median(step_us(running, waiting, steps) for _ in range(rounds))
            step[running, waiting] = value
            wanted = 1000.0 if running == 256 else None
            results.append(result(f"step, {running} running, {waiting} waiting", value, wanted))
    few, many = WAITING
    for tenants in (1, 1000):
        value = blocked_step_us(256, many, tenants, min(steps, 90))
        name = f"step, 256 running, {many} waiting of {tenants} tenants for want of room"
        results.append(result(name, value, 1000.0))
    results.append(growth("step growth, 100 to 10000 waiting at 256", step[256, many] / step[256, few], 1.2))
    results.append(growth("step growth, 16 to 256 running", step[256, few] / step[16, few], 16.0))
    scheduler = loaded(256, 10_000)
    looks: dict[str, Callable[[Scheduler], Any]] = {
        f"rows of 256 running and {SHOWN_WAITING} waiting": lambda scheduler: rows(scheduler, SHOWN_WAITING),
        f"block map of {BLOCKS} blocks, 256 running": block_map,
        f"block runs of {BLOCKS} blocks, 256 running": lambda scheduler: block_runs(block_map(scheduler)),
        "reason counts of 10000 waiting": lambda scheduler: scheduler.admission.reason_counts(),
    }
    results += [result(name, look_us(scheduler, look, 9 * rounds)) for name, look in looks.items()]
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300, help="steps measured per round (default 300)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds per figure (default 3)")
    options = parser.parse_args()
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
    document = {"version": 1, "machine": machine, "results": measure(options.steps, options.rounds)}
    json.dump(document, sys.stdout)
    print()


if __name__ == "__main__":
    main()
