"""What goes wrong without anybody asking for it."""

import asyncio
from random import Random

from simulation.fleet.machines import Machines
from simulation.fleet.server import Server
from simulation.fleet.tally import FleetTally

KINDS = {"crash": 3, "kill": 4, "freeze": 2, "hiccup": 2, "undead": 2, "echo": 2}


class Faults:
    def __init__(self, server: Server, random: Random, tally: FleetTally) -> None:
        self._server = server
        self._random = random
        self._tally = tally

    async def run(self, until_s: float, pause_s: float | None) -> None:
        """One every ``pause_s`` or so; None: none."""
        draw = self._random
        machines: Machines = self._server.machines
        while pause_s is not None and self._server.fleet.now() < until_s:
            await asyncio.sleep(draw.expovariate(1 / pause_s))
            living = machines.all_living()
            kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
            if kind == "echo":
                self._tally.late_messages += machines.repeat_of_the_dead()
                continue
            if not living:
                continue
            machine = draw.choice(living)
            if machine.scheduler is None and kind == "freeze" and draw.random() < 0.9:
                continue  # it takes five minutes until that is noticed
            self._tally.faults[kind] += 1
            match kind:
                case "crash":
                    machine.crash("the GPU fell off the bus")
                case "kill":
                    machine.kill()
                case "undead":  # whoever kills it next has to wait
                    machine.undead_s = draw.choice([0.7, 3.0, 12.0])
                    if draw.random() < 0.5:
                        machine.kill()
                case "hiccup":
                    machine.freeze()
                    machines.clock.call_at(machines.clock.now() + draw.choice([1.0, 4.0, 7.0]), machine.thaw)
                case _:
                    machine.freeze()
