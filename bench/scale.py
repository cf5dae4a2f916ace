"""How the server, the watch stream and the console grow with the fleet: 1 to 1,000 simulated replicas.

``python bench/scale.py`` measures every part at every size (about five minutes), prints one table, and
writes it with the machine to ``bench/results/scale-MACHINE.json`` and into ``docs/scale.md``. ``--only PART``
and ``--replicas N …`` measure some of it; the file keeps the rest. Parts:

- ``router``: decisions of the real router among replicas that are only told about (no step loops).
- ``report``: what one step report costs the server, from its bytes to the feed (no socket, no step loops).
- ``server``: ``infer-console serve --simulate`` with two requests on every replica, watched by 0, 1, 2 and
  4 streams as the Fleet screen asks for, and by one as the Replica screen does; by the real console in a
  terminal of 200x50 at 4 Hz; its documents, ``/metrics`` and the recorder.
- ``mqtt``: an idle fleet and a real mosquitto (left out where there is none).

The step loops of simulated replicas run in the server's process, which those of real ones do not: what they
cost is in the row "without watchers" and in no other; rows about watchers are what comes on top. So that they
leave room the replicas are slow: about one step a second each.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from infer_engine.benchmark.machine import describe, file_name
from infer_engine.benchmark.routing import LargeFleet
from scale_mqtt import mqtt
from scale_report import ReportedFleet
from scale_server import server
from scale_table import Row, read, table, write_docs, write_json

ROOT = Path(__file__).parents[1]
SIZES = (1, 10, 100, 300, 1_000)
#: Of each replica, in the router's index; requests in its batch there; decisions of each size.
INDEXED_BLOCKS, RUNNING, DECISIONS = 100, 16, 200


def router(replicas: int) -> Row:
    fleet = LargeFleet(replicas, INDEXED_BLOCKS * replicas, RUNNING)
    taken: list[float] = []
    for number in range(DECISIONS):
        fleet.go_on(max(1, replicas // 100), replicas // 5)
        prompt = fleet.behind(fleet.common) if number % 2 else fleet.fresh_prompt()
        taken.append(fleet.decide_us(prompt) / 1_000)
    taken.sort()
    return {"router p50, ms": median(taken), "router p95, ms": taken[len(taken) * 95 // 100]}


def report(replicas: int) -> Row:
    fleet = ReportedFleet(replicas, RUNNING)
    return {f"step report of {RUNNING} tokens, us": fleet.report_us()}


PARTS: dict[str, Callable[[int], Row]] = {
    "router": router,
    "report": report,
    "server": server,
    "mqtt": mqtt,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--replicas", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--note", help="what is to be known of the machine, as that others used it meanwhile")
    parser.add_argument("--out", type=Path, help="the JSON file; default bench/results/scale-MACHINE.json")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/scale.md as it is")
    given = parser.parse_args()
    machine = describe()
    out: Path = given.out or ROOT / "bench/results" / f"scale-{file_name(machine)}"
    rows = read(out)
    for part in given.only:
        for replicas in given.replicas:
            print(f"{part}, {replicas} replicas", file=sys.stderr)
            rows.setdefault(str(replicas), {}).update(PARTS[part](replicas))
            write_json(out, machine, given.note, rows)
    print(table(rows))
    if not given.no_docs:
        write_docs(ROOT / "docs/scale.md", machine, given.note, rows)


if __name__ == "__main__":
    main()
