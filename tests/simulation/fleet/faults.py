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

    async def hunt(self, until_s: float) -> None:
        """One request kills every replica that takes it, before it has its first token, until it is taken for
        what it is."""
        server = self._server
        ledger = server.fleet.placement.ledger
        prey: str | None = None
        while server.fleet.now() < until_s:
            await asyncio.sleep(0.05)
            if prey is None:
                fresh = [each for each in ledger.live.values() if not each.generation.emitted]
                prey = next((each.id for each in fresh if each.generation.spec.deadline_s is None), None)
            if prey is None:
                continue
            request = ledger.live.get(prey)
            if request is None or request.generation.emitted:
                prey = None
                continue
            machine = server.machines.living(request.generation.replica or "")
            if machine is not None and machine.scheduler is not None:
                self._tally.faults["crash"] += 1
                machine.crash("of what it was asked")

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
