"""One scenario: a fleet, its clients, its faults, two operators, perhaps the end of its server; then quiet,
until everything has ended. All of it is drawn from one seed."""

import asyncio
import traceback
import zlib
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from infer_engine.control import drains, lifecycle, scaling
from infer_engine.replica.launch_inproc import MakeRunner
from infer_engine.replica.messages import ReplicaConfig
from infer_engine.settings import ReplicaSettings, ServerSettings
from msgspec import structs
from simulation.fleet.clients import Clients
from simulation.fleet.disk import Disk
from simulation.fleet.faults import Faults
from simulation.fleet.machines import Machines
from simulation.fleet.operators import Operator
from simulation.fleet.server import Server
from simulation.fleet.tally import FleetTally
from simulation.fleet.watchman import Watchman
from simulation.fleet.words import WordRunner, runner_info
from simulation.simulate import SimulationError
from support.virtual_loop import LoopClock, run_virtually

#: Virtual seconds within which everything ends once nobody asks for anything more.
QUIET_S = 400.0
BLOCK_SIZE = 4
#: In one scenario of so many a request kills whoever takes it: by chance alone that hardly happens.
HUNTS = 25
#: How often operations look at their replica: seldom, since nothing here hurries.
POLL_S = 0.4


class Scenario:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = draw = Random(seed)
        self.tally = FleetTally(scenarios=1)
        self.digest = 0
        self.kv_blocks = draw.choice([18, 24, 40])
        self.step_s = draw.choice([0.3, 0.5, 0.9])
        self.active_s = draw.choice([5.0, 8.0, 12.0])
        self.settings = ServerSettings(
            replicas=draw.choice([1, 2, 2, 3, 3, 4]),
            max_replicas=5,
            seed=seed + 1,
            replica=ReplicaSettings(
                block_size=BLOCK_SIZE,
                kv_blocks=self.kv_blocks,
                max_running=draw.choice([2, 4, 6]),
                token_budget=draw.choice([8, 16, 64]),
                max_waiting=draw.choice([2, 8, 100]),
                admit_limit_ratio=draw.choice([0.7, 0.9, 1.0]),
                batch_limit_ratio=draw.choice([0.5, 0.7]),
                prefix_cache=draw.random() < 0.5,
                host_blocks=0,
            ),
        )
        self.disk = Disk()

    def run(self, _steps: int = 0) -> FleetTally:
        try:
            with (
                patch.object(drains, "POLL_S", POLL_S),
                patch.object(lifecycle, "POLL_S", POLL_S),
                patch.object(scaling, "POLL_S", POLL_S),
            ):
                run_virtually(self._play())
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} in {Path(line.filename).name}:{line.lineno}: "
            what += str(error) or line.line or ""
            text = f"fleet seed {self.seed}: {what}\nreplay: make simulate WHAT=fleet SEED={self.seed}"
            raise SimulationError(text) from error
        return self.tally

    async def _play(self) -> None:
        draw = self.random
        server = await self._start()
        clients = Clients(draw, self.tally)
        if draw.random() < 0.2:
            watchman = await self._active(server, clients, self.active_s / 2)
            server = await self._start_again(server, watchman)
        watchman = await self._active(server, clients, self.active_s)
        await self._quiet(server, clients, watchman)
        self._sum_up(server, clients)
        watchman.stopping = True
        await server.stop()

    async def _start(self) -> Server:
        clock = LoopClock(asyncio.get_running_loop())
        machines = Machines(
            clock, self._make_runner(), self.random, fails_to_load=self.random.choice([0, 0, 0.2])
        )
        # Another seed for each server: none gives out a request's id that another did.
        settings = structs.replace(self.settings, seed=self.settings.seed + self.tally.restarts * 1_000_003)
        server = Server(settings, machines, self.disk, self.random)
        await server.start()
        return server

    def _make_runner(self) -> MakeRunner:
        info = runner_info(self.kv_blocks, BLOCK_SIZE, self.kv_blocks * BLOCK_SIZE)

        def make(_config: ReplicaConfig, advance: Any) -> WordRunner:
            return WordRunner(info, advance, lambda: self.step_s * self.random.uniform(0.7, 1.3))

        return make

    async def _active(self, server: Server, clients: Clients, for_s: float) -> Watchman:
        """Everybody at once; done when all are."""
        draw, fleet = self.random, server.fleet
        watchman = Watchman(server, self.tally)
        until_s = fleet.now() + for_s
        faults = Faults(server, draw, self.tally)
        ann, bob = (Operator(name, server, draw, self.tally) for name in ("ann", "bob"))
        most_tokens = min(30, self.kv_blocks * BLOCK_SIZE - 40)
        await asyncio.gather(
            clients.run(fleet, for_s, draw.choice([4, 10, 20]), most_tokens),
            faults.run(until_s, draw.choice([2.0, 5.0, None])),
            *([faults.hunt(until_s)] if self.seed % HUNTS == 0 else []),
            ann.run(until_s, draw.choice([0.5, 1.5, 4.0])),
            bob.run(until_s, draw.choice([0.5, 1.5, 4.0])),
        )
        watchman.look()
        server.book.settle()
        return watchman

    async def _start_again(self, server: Server, watchman: Watchman) -> Server:
        """The server ends, kindly or not, and another begins with what it had written."""
        self.tally.restarts += 1
        watchman.stopping = True
        server.book.settle()
        kindly = self.random.random() < 0.5
        await (server.stop() if kindly else server.die())
        watchman.unsubscribe()
        again = await self._start()
        again.book.resume(server.book, all_written=kindly)
        return again

    # --- the end -------------------------------------------------------------------------------------------

    async def _quiet(self, server: Server, clients: Clients, watchman: Watchman) -> None:
        """Everything that was taken out comes back; then all must end."""
        server.machines.quiet = True
        fleet = server.fleet
        end_s = fleet.now() + QUIET_S
        while True:
            await self._heal(server)
            server.book.settle()
            waits = [*clients.unfinished(), *server.book.unfinished()]
            healthy = all(each.state == "ready" for each in fleet.members.handles.values())
            if not waits and healthy:
                break
            assert fleet.now() < end_s, f"do not end: {waits[:6]}, {self._states(server)}"
            await asyncio.sleep(1.0)
        await clients.read_out()
        await asyncio.sleep(2.0)  # what is still on its way arrives
        while left := watchman.not_in_force():
            assert fleet.now() < end_s, "; ".join(left)
            await self._heal(server)  # one that was killed long ago may only die now
            await asyncio.sleep(1.0)
        server.book.settle()
        watchman.check_idle()
        clients.check_all()

    async def _heal(self, server: Server) -> None:
        fleet = server.fleet
        if fleet.specs.wanted.shed:
            await server.send("shed", "fleet", {"on": False}, {"if-match": "*"})
        for handle in list(fleet.members.handles.values()):
            if handle.leaving:
                continue
            if handle.fenced is not None:
                await server.send("release", handle.id, {}, {"if-match": "*"})
            elif handle.cordoned and not handle.reopens:
                await server.send("undrain", handle.id, {}, {"if-match": "*"})
            elif handle.state == "failed" and server.operations.running("restart", handle.id) is None:
                await server.send("restart", handle.id, {"deadline_s": 0.0, "force": True}, {})
        if not fleet.members.handles or len(fleet.resizing.present()) != fleet.specs.wanted.replicas:
            wanted = max(1, min(len(fleet.resizing.present()), fleet.resizing.most))
            body = {"replicas": wanted, "force": True, "actor": "by force"}
            await server.send("scale", "fleet", body, {"if-match": "*"})

    def _states(self, server: Server) -> dict[str, str]:
        return {each.id: each.state for each in server.fleet.members.handles.values()}

    def _sum_up(self, server: Server, clients: Clients) -> None:
        for operation in server.announced.values():
            self.tally.operations[f"{operation.kind} {operation.phase}"] += 1
        self.tally.writes += server.book.accepted
        for client in clients.all.values():
            self._note(client.generation.id, client.generation.emitted, client.generation.error_code)
        self._note(self.tally.steps, sorted(self.tally.accepted.items()), sorted(self.tally.denied.items()))

    def _note(self, *what: object) -> None:
        self.digest = zlib.crc32(repr(what).encode(), self.digest)
