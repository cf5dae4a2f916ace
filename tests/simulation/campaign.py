"""Runs a simulation seed after seed, on as many cores as it is told, and reports what it went through.

``python tests/simulation/campaign.py --seed 7`` replays one seed, ``--seeds 250`` runs so many from there
on, ``--minutes 60`` as many as fit. ``--what fleet`` takes scenarios of a whole fleet in the place of one
replica's core. The exit status is 1 when something does not hold; what, and how to replay it, is the last
that is printed.
"""

import argparse
import gc
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Generic, Protocol, Self, TypeVar

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation.counts import Counts
from simulation.fleet.scenario import Scenario
from simulation.fleet.tally import FleetTally
from simulation.simulate import STEPS, Simulation, SimulationError
from simulation.tally import Tally

SCRIPT = Path(__file__)

T = TypeVar("T", bound=Counts)
T_co = TypeVar("T_co", bound=Counts, covariant=True)
#: A worker tells of itself at least this often, unless a seed does not end.
LONGEST_SEED_S = 120.0


class Run(Protocol):
    """One seed. ``run`` raises SimulationError where something does not hold; after it the digest is that of
    all that happened."""

    digest: int

    def run(self, steps: int, /) -> Counts: ...


@dataclass(frozen=True)
class Subject(Generic[T_co]):
    """What is simulated."""

    make: Callable[[int], Run]
    tally: type[T_co]


CORE = Subject(Simulation, Tally)
FLEET = Subject(Scenario, FleetTally)
SUBJECTS: dict[str, Subject[Counts]] = {"core": CORE, "fleet": FLEET}


@dataclass
class Report(Generic[T]):
    """What was run: ``digests`` by seed, ``failures`` with how to replay each."""

    tally: T
    digests: dict[int, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def run_seeds(
    make: Callable[[int], Run], seeds: Iterator[int], steps: int, seconds: float | None
) -> Iterator[dict[str, object]]:
    """One line of a worker for each seed; none after the first failure, or after ``seconds``."""
    end_s = None if seconds is None else time.monotonic() + seconds
    for seed in seeds:
        if end_s is not None and time.monotonic() >= end_s:
            return
        simulation = make(seed)
        try:
            tally = simulation.run(steps)
        except SimulationError as error:
            yield {"seed": seed, "failure": str(error)}
            return
        yield {"seed": seed, "digest": simulation.digest, "tally": tally.as_dict()}


class Campaign(Generic[T]):
    """Worker processes that share the seeds ``first .. first + count``. Leaving it ends them, however it is
    left; a worker whose output nobody reads any more ends by itself."""

    def __init__(
        self,
        workers: int,
        first: int,
        count: int | None,
        steps: int,
        seconds: float | None = None,
        nice: int = 0,
        *,
        what: str = "core",
        subject: Subject[T],
    ) -> None:
        """``count`` or ``seconds`` must bound it; ``nice`` is how much it gives way to other processes.
        ``what`` names the subject to the workers."""
        self._subject = subject
        self._processes: list[subprocess.Popen[str]] = []
        for worker in range(workers):
            command = [sys.executable, str(SCRIPT), "--worker", "--what", what, "--steps", str(steps)]
            command += ["--seed", str(first + worker), "--stride", str(workers)]
            if count is not None:
                command += ["--seeds", str(len(range(worker, count, workers)))]
            if nice:
                command += ["--nice", str(nice)]
            if seconds is not None:
                command += ["--minutes", str(seconds / 60)]
            # Nothing may depend on the order of a set.
            environment = {**os.environ, "PYTHONHASHSEED": str(worker + 1)}
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait(60)
            _output(process).close()

    def report(self) -> Report[T]:
        """Waits for all workers."""
        report = Report(self._subject.tally())
        # All at once: a worker whose lines nobody reads stands still as soon as the pipe is full.
        with ThreadPoolExecutor(len(self._processes)) as readers:
            told = list(readers.map(lambda process: list(_output(process)), self._processes))
        for process, lines in zip(self._processes, told, strict=True):
            for line in lines:
                _take(json.loads(line), report, self._subject.tally)
            if (status := process.wait(LONGEST_SEED_S)) != 0 and not report.failures:
                report.failures.append(f"a worker ended with status {status}")
        return report


def _output(process: subprocess.Popen[str]) -> IO[str]:
    if process.stdout is None:
        raise RuntimeError("a worker was started without a pipe")
    return process.stdout


def _take(line: dict[str, object], report: Report[T], tally_type: type[T]) -> None:
    if "failure" in line:
        report.failures.append(str(line["failure"]))
        return
    tally = tally_type.of(line["tally"])  # type: ignore[arg-type]
    report.tally.add(tally)
    report.digests[int(str(line["seed"]))] = int(str(line["digest"]))


def work(options: argparse.Namespace) -> int:
    """A worker: one line of JSON for each seed."""
    os.nice(options.nice)
    # Nothing here makes cycles worth looking for within a seed. What was imported stays: looking through it
    # after each seed would cost as much as the seed.
    gc.disable()
    gc.collect()
    gc.freeze()
    last = None if options.seeds is None else options.seed + options.stride * options.seeds
    logging.disable(logging.CRITICAL)  # faults that are meant are logged, too
    seeds = _count(options.seed, options.stride, last)
    for line in run_seeds(
        SUBJECTS[options.what].make, seeds, options.steps, options.minutes and options.minutes * 60
    ):
        try:
            print(json.dumps(line), flush=True)
        except BrokenPipeError:
            # Whoever started it has gone. Nothing is left to flush to.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        gc.collect()
    return 0


def _count(first: int, stride: int, last: int | None) -> Iterator[int]:
    seed = first
    while last is None or seed < last:
        yield seed
        seed += stride


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.worker:
        return work(options)
    count = options.seeds
    if count is None and options.minutes is None:
        count = 1
    workers = min(options.workers, count or options.workers)
    seconds = None if options.minutes is None else options.minutes * 60
    began_s = time.monotonic()
    subject = SUBJECTS[options.what]
    with Campaign(
        workers, options.seed, count, options.steps, seconds, what=options.what, subject=subject
    ) as campaign:
        report = campaign.report()
    took_s = time.monotonic() - began_s
    if report.digests and not report.failures:
        print(report.tally)
        last, seeds = max(report.digests), len(report.digests)
        print(f"{seeds:,} seeds in {took_s:,.0f} s on {workers} cores; last seed {last},", end=" ")
        print(f"digest {report.digests[last]:08x}")
    for failure in report.failures:
        print(failure, file=sys.stderr, flush=True)
    return bool(report.failures)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, help="how many seeds (default 1, or as many as fit --minutes)")
    parser.add_argument("--what", choices=list(SUBJECTS), default="core", help="what is simulated")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps per seed (default {STEPS})")
    parser.add_argument("--minutes", type=float, help="begin no further seed after so long")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--workers", type=int, default=cores, help="processes (default one for each core)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--nice", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--stride", type=int, default=1, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
