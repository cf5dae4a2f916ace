"""Part ``consoles``: what four consoles that look closely cost the server and those it serves.

Windows without any (A), with four real consoles (B), and with four watch streams that nobody looks at (C)
take turns under a steady load: A B C A B C … A. The consoles run on the same machine, so what they compute
themselves is in their loss too; the watch streams tell what the server's share of it is.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from infer_engine.benchmark.client import Answer, Client, together
from infer_engine.benchmark.console_process import ConsoleProcess
from infer_engine.benchmark.engine_server import EngineServer, engine_server
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.processes import cpu_seconds
from infer_engine.benchmark.results import Result, result
from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.statistics import paired
from infer_engine.benchmark.watcher import Watcher
from infer_engine.benchmark.workload import Ask, text

CONSOLES = 4
PAIRS = 10
STREAMS = 8
PROMPT_TOKENS, OUTPUT_TOKENS = 32, 400
WINDOW_S, SETTLE_S = 4.0, 1.0
CPU_WANTED = 2.0
TIMEOUT_S = 60.0


@dataclass(slots=True)
class Window:
    tokens_per_s: float
    #: Per cent of a core: of the server, its replica, and all consoles together.
    server_cpu: float
    replica_cpu: float
    consoles_cpu: float
    bytes_per_s: float = 0.0


@dataclass(slots=True)
class SteadyLoad:
    """Streams that begin anew when they end, for as long as ``running`` is awaited."""

    client: Client
    setup: Setup
    answers: list[Answer] = field(default_factory=list[Answer])

    async def run(self) -> None:
        await together([self._stream(number) for number in range(STREAMS)])

    async def _stream(self, number: int) -> None:
        start = 67 * number
        while True:
            prompt = text(start, self.setup.short(PROMPT_TOKENS), self.setup.vocabulary)
            answer = Answer(Ask(prompt, OUTPUT_TOKENS), 0.0)
            self.answers.append(answer)
            await self.client.ask(answer.ask, answer)
            start += 701

    def tokens(self, began_s: float, ended_s: float) -> int:
        """Pieces of text that came in that time."""
        return sum(
            bisect_right(each.frames_s, ended_s) - bisect_right(each.frames_s, began_s)
            for each in self.answers
        )


def measure(setup: Setup) -> list[Result]:
    with engine_server(setup) as server:
        windows = asyncio.run(_windows(server, setup))
    without, with_them, watched = windows["none"], windows["consoles"], windows["watchers"]
    return [
        _beside_none(f"tokens/s with {CONSOLES} consoles attached", without, with_them, setup),
        _beside_none(f"tokens/s with {CONSOLES} watch streams, no console", without, watched, setup),
        result("tokens/s with no console attached", "tokens/s", [each.tokens_per_s for each in without]),
        result(
            "server CPU per console",
            "% of a core",
            _cost(without, with_them, "server_cpu"),
            wanted=CPU_WANTED,
            bound="most",
        ),
        result(
            "server CPU per watch stream",
            "% of a core",
            _cost(without, watched, "server_cpu"),
            wanted=CPU_WANTED,
            bound="most",
        ),
        result("replica CPU per watch stream", "% of a core", _cost(without, watched, "replica_cpu")),
        result("a console's own CPU", "% of a core", [each.consoles_cpu / CONSOLES for each in with_them]),
        result(
            "bytes/s that a console writes",
            "bytes/s",
            [each.bytes_per_s / CONSOLES for each in with_them],
            note="the replica screen at 120×40",
        ),
        result("bytes/s of a watch stream", "bytes/s", [each.bytes_per_s / CONSOLES for each in watched]),
    ]


def _beside_none(measure: str, without: list[Window], with_them: list[Window], setup: Setup) -> Result:
    """Wanted: not below what windows without any differ by among themselves."""
    found = paired([each.tokens_per_s for each in without], [each.tokens_per_s for each in with_them])
    low, high = found.band
    return Result(
        measure=measure,
        value=median(each.tokens_per_s for each in with_them),
        unit="tokens/s",
        against="none attached",
        ratio=found.ratio,
        wanted=low,
        met=found.ratio >= low,
        samples=tuple(each.tokens_per_s for each in with_them),
        note=f"A/A band {low:.3f} to {high:.3f}; {len(with_them)} pairs of {_window(setup):g} s",
    )


def _cost(without: Sequence[Window], with_them: Sequence[Window], name: str) -> list[float]:
    """Per console, each window with them against the mean of the two around it."""
    around = pairwise(without)
    return [
        (getattr(each, name) - (getattr(before, name) + getattr(after, name)) / 2) / CONSOLES
        for each, (before, after) in zip(with_them, around, strict=True)
    ]


def _window(setup: Setup) -> float:
    return max(0.5, WINDOW_S / setup.shrink)


async def _windows(server: EngineServer, setup: Setup) -> dict[str, list[Window]]:
    pairs = PAIRS if setup.shrink == 1 else 1
    made: dict[str, list[Window]] = {"none": [], "consoles": [], "watchers": []}
    async with server.client() as client:
        load = SteadyLoad(client, setup)
        running = asyncio.create_task(load.run())
        try:
            made["none"].append(await _window_of(server, load, setup))
            for number in range(pairs):
                made["consoles"].append(await _with_consoles(server, load, setup))
                made["watchers"].append(await _with_watchers(server, load, setup))
                made["none"].append(await _window_of(server, load, setup))
                rates = (f"{each[-1].tokens_per_s:.1f} with {what}" for what, each in made.items())
                setup.say(f"  pair {number + 1}: tokens/s {', '.join(rates)}")
                if running.done():
                    running.result()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    return made


async def _with_consoles(server: EngineServer, load: SteadyLoad, setup: Setup) -> Window:
    consoles: list[ConsoleProcess] = []
    try:
        for _ in range(CONSOLES):
            consoles.append(ConsoleProcess(server.control_url))
        await together([console.look_closely() for console in consoles])
        return await _window_of(
            server,
            load,
            setup,
            [each.pid for each in consoles],
            lambda: sum(each.written_bytes for each in consoles),
        )
    finally:
        await asyncio.gather(*(console.stop() for console in consoles))


async def _with_watchers(server: EngineServer, load: SteadyLoad, setup: Setup) -> Window:
    watchers = [Watcher() for _ in range(CONSOLES)]
    running = [asyncio.create_task(each.run(server.control_url)) for each in watchers]
    try:
        window = await _window_of(
            server, load, setup, counted=lambda: sum(each.read_bytes for each in watchers)
        )
        for task in running:
            if task.done():
                task.result()
        return window
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _window_of(
    server: EngineServer,
    load: SteadyLoad,
    setup: Setup,
    consoles: Sequence[int] = (),
    counted: Callable[[], int] = int,
) -> Window:
    """``consoles`` are processes whose CPU time is told apart; ``counted`` says how many bytes came to them
    so far."""
    await asyncio.sleep(SETTLE_S / setup.shrink)
    pids = [server.process.pid, _only_child(server.process.pid), *consoles]
    began_s, before, bytes_before = time.perf_counter(), [cpu_seconds(pid) for pid in pids], counted()
    await asyncio.sleep(_window(setup))
    ended_s, after, bytes_after = time.perf_counter(), [cpu_seconds(pid) for pid in pids], counted()
    taken_s = ended_s - began_s
    used = [100 * (late - early) / taken_s for early, late in zip(before, after, strict=True)]
    return Window(
        tokens_per_s=load.tokens(began_s, ended_s) / taken_s,
        server_cpu=used[0],
        replica_cpu=used[1],
        consoles_cpu=sum(used[2:]),
        bytes_per_s=(bytes_after - bytes_before) / taken_s,
    )


def _only_child(pid: int) -> int:
    """The one replica of a server."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError as error:
        raise BenchError(f"/proc does not tell the children of process {pid}: {error}") from error
    if len(children) != 1:
        raise BenchError(f"the server has {len(children)} child processes; one replica was started")
    return int(children[0])
