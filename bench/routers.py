"""Our router beside other rules, on simulated fleets: time to first token, 95th percentile.

``python bench/routers.py`` prints a table, ``--json`` a results document. Three kinds of arrivals, each on a
fleet of its own for every seed and rule, in simulated time: the figures follow from the seeds alone and are
the same on every machine. The arrivals and the rules are those of the tests (``tests/support``).
"""

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.routing_loads import MODEL, REPLICAS, RULES, WORKLOADS, Outcome, outcome

SEEDS = 10
REQUESTS = 800
#: Of the others' best figure, what ours may be at most.
WANTED = {"prefix-heavy": 1.0, "uniform": 1.05, "adversarial": 1.05}


def measured(workload: str, rule: str, seeds: int, requests: int) -> list[Outcome]:
    made: list[Outcome] = []
    for seed in range(1, seeds + 1):
        with tempfile.TemporaryDirectory(prefix="infer-routers-") as directory:
            made.append(outcome(workload, RULES[rule](), seed, requests, Path(directory) / "run"))
    return made


def results_of(workload: str, outcomes: dict[str, list[Outcome]]) -> list[dict[str, Any]]:
    """One figure a rule: the mean over the seeds, ours beside each of the others."""
    ours = fmean(each.ttft_p95_s for each in outcomes["ours"])
    results: list[dict[str, Any]] = []
    for rule, made in outcomes.items():
        value = ours if rule == "ours" else fmean(each.ttft_p95_s for each in made)
        results.append(
            {
                "measure": f"TTFT p95, {workload}, {rule}",
                "value": value,
                "unit": "s",
                "samples": [each.ttft_p95_s for each in made],
                "note": f"prefix hits {fmean(each.hit_ratio for each in made):.0%}; simulated time",
            }
        )
        if rule != "ours":
            ratio, wanted = ours / value, WANTED[workload]
            met = ratio < wanted if wanted == 1.0 else ratio <= wanted
            results.append(
                {
                    "measure": f"TTFT p95, {workload}, ours beside {rule}",
                    "value": ours,
                    "unit": "s",
                    "against": rule,
                    "ratio": ratio,
                    "wanted": wanted,
                    "met": met,
                    "bound": "most",
                }
            )
    return results


def table(outcomes: dict[str, dict[str, list[Outcome]]]) -> str:
    lines = [f"{'':14}" + "".join(f"{rule:>28}" for rule in RULES)]
    for workload, by_rule in outcomes.items():
        cells: list[str] = []
        for made in by_rule.values():
            p95s = [each.ttft_p95_s * 1000 for each in made]
            hits = fmean(each.hit_ratio for each in made)
            cells.append(f"{fmean(p95s):.0f} ms ({min(p95s):.0f}–{max(p95s):.0f}), {hits:.0%} hits")
        lines.append(f"{workload:14}" + "".join(f"{cell:>28}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"fleets per figure (default {SEEDS})")
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"per fleet (default {REQUESTS})")
    parser.add_argument("--only", choices=list(WORKLOADS), help="one kind of arrivals")
    parser.add_argument("--json", action="store_true", help="print a results document")
    options = parser.parse_args()
    outcomes: dict[str, dict[str, list[Outcome]]] = {}
    for workload in WORKLOADS if options.only is None else [options.only]:
        outcomes[workload] = {
            rule: measured(workload, rule, options.seeds, options.requests) for rule in RULES
        }
    if not options.json:
        print(f"TTFT p95, mean over {options.seeds} seeds (least–most); {REPLICAS} replicas of {MODEL}")
        print(table(outcomes))
        return
    results = [result for workload, made in outcomes.items() for result in results_of(workload, made)]
    machine = {"python": platform.python_version(), "simulated": f"{REPLICAS} × {MODEL}"}
    print(json.dumps({"version": 1, "machine": machine, "results": results}))


if __name__ == "__main__":
    main()
