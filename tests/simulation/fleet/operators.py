"""Operators who do not know of each other: each looks, thinks, and writes what may be stale by then; some
send twice what they are not sure of."""

import asyncio
from random import Random
from typing import Any

import msgspec
from infer_engine.control.versions import REPLICAS
from simulation.fleet.server import Server
from simulation.fleet.tally import FleetTally

#: Verbs by how often each is chosen.
VERBS = {
    "drain": 10,
    "undrain": 8,
    "fence": 4,
    "release": 5,
    "restart": 3,
    "scale": 5,
    "shed": 3,
    "headroom": 4,
    "limits": 4,
    "tenant": 5,
    "cancel": 4,
    "preempt": 8,
    "cancel_where": 1,
}
#: What a command may be refused with.
REFUSALS = frozenset({400, 404, 409, 412, 422, 428, 429, 504})
NEEDS_VERSION = frozenset({"undrain", "release", "scale", "shed", "headroom", "limits", "tenant"})


class Operator:
    def __init__(self, name: str, server: Server, random: Random, tally: FleetTally) -> None:
        self.name = name
        self.server = server
        self.random = random
        self.tally = tally
        self._sent = 0

    async def run(self, until_s: float, pause_s: float) -> None:
        draw = self.random
        while self.server.fleet.now() < until_s:
            await asyncio.sleep(draw.expovariate(1 / pause_s))
            verb = draw.choices(list(VERBS), list(VERBS.values()))[0]
            asked = self._ask(verb)
            if asked is not None:
                await self._do(verb, *asked)

    async def _do(self, verb: str, target: str, spec: str | None, body: dict[str, Any]) -> None:
        draw = self.random
        headers: dict[str, str] = {}
        if draw.random() < 0.8:
            self._sent += 1
            headers["idempotency-key"] = f"{self.name}-{self._sent}"
        if verb in NEEDS_VERSION and spec is not None and draw.random() < 0.97:
            seen = self.server.book.read(spec)
            headers["if-match"] = "*" if seen is None or draw.random() < 0.1 else f'"{seen[0]}"'
            await asyncio.sleep(draw.choice([0.0, 0.0, 0.2, 1.5]))  # somebody else may have been there since
        actor = self.name
        if body.get("force"):
            actor += " by force"
        body = {**body, "actor": actor, "reason": f"{self.name} {self._sent}"}
        twice = "idempotency-key" in headers and draw.random() < 0.2
        answers = [self.server.send(verb, target, body, headers) for _ in range(1 + twice)]
        told: set[int] = set()
        for response in await asyncio.gather(*answers):
            status = response.status_code
            told.add(status)
            if status != 200:
                problem = msgspec.json.decode(bytes(response.body))
                assert status in REFUSALS, f"{verb} {target}: {problem}"
                self.tally.denied[problem["code"]] += 1
                continue
            self.tally.accepted[verb] += 1
        assert len(told - {409}) <= 1, f"{verb} under one key was answered with {told}"

    def _ask(self, verb: str) -> tuple[str, str | None, dict[str, Any]] | None:
        """Target, spec and body; None where there is nothing to do it to."""
        draw = self.random
        fleet = self.server.fleet
        replica = draw.choice(
            [*fleet.replica_ids(), "r9"] if draw.random() < 0.05 else fleet.replica_ids() or ["r0"]
        )
        spec = f"replica:{replica}"
        if verb in ("cancel", "preempt"):
            live = [row.id for row in fleet.rows()]
            if not live:
                return None
            to = {"to": replica} if verb == "preempt" and draw.random() < 0.7 else {}
            return draw.choice(live), None, to
        if verb in ("headroom", "limits"):
            named = {} if draw.random() < 0.4 else {"replica": replica}
            after = {"revert_after_s": draw.choice([1.0, 3.0])} if draw.random() < 0.4 else {}
            return replica, spec if named else REPLICAS, {**named, **after, **self._values(verb)}
        if verb == "tenant":
            name = draw.choice(["red", "red", "blue", "*"])
            after = {"revert_after_s": draw.choice([1.0, 3.0])} if draw.random() < 0.4 else {}
            wish = {"forget": True} if draw.random() < 0.25 else {"limits": self._tenant()}
            return name, f"tenant:{name}", {**wish, **after}
        if verb in ("scale", "shed"):
            return "fleet", "fleet", self._of_fleet(verb)
        if verb == "cancel_where":
            tenant = draw.choice(["red", "blue"])
            found = sum(row.tenant == tenant for row in fleet.rows())
            return "requests", None, {"where": f"tenant={tenant}", "expect": found}
        return replica, spec, self._of_replica(verb)

    def _of_replica(self, verb: str) -> dict[str, Any]:
        draw = self.random
        force = {"force": True} if draw.random() < 0.1 else {}
        mode = draw.choice([None, None, "migrate", "wait", "cancel"])
        match verb:
            case "drain":
                deadline = {"deadline_s": draw.choice([0.0, 2.0, 8.0, None])}
                return {"mode": mode, **deadline, "on_deadline": draw.choice(["cancel", "wait"]), **force}
            case "fence":
                return {"suspect": draw.random() < 0.3, **force}
            case "restart":
                return {"mode": mode, "deadline_s": draw.choice([0.0, 2.0, 8.0]), **force}
            case _:
                return {}

    def _of_fleet(self, verb: str) -> dict[str, Any]:
        draw = self.random
        if verb == "shed":
            return {"on": draw.random() < 0.5}
        force = {"force": True} if draw.random() < 0.1 else {}
        return {
            "replicas": draw.choice([1, 2, 2, 3, 3, 4]),
            "deadline_s": draw.choice([1.0, 5.0, 20.0]),
            **force,
        }

    def _values(self, verb: str) -> dict[str, Any]:
        draw = self.random
        if verb == "headroom":
            return {"blocks": draw.choice([0, 1, 3, 6]), "tier": draw.choice(["interactive", "batch"])}
        running = draw.choice([1, 2, 4, 6])
        wishes: list[dict[str, int]] = [
            {"max_running": running, "token_budget": running + draw.choice([0, 4, 30])},
            {"token_budget": draw.choice([2, 4, 16])},
            {"max_passes": draw.choice([0, 2])},
        ]
        return {"limits": draw.choice(wishes)}

    def _tenant(self) -> dict[str, Any]:
        draw = self.random
        wishes: list[dict[str, Any]] = [
            {"requests_per_minute": draw.choice([1, 3, None])},
            {"prompt_tokens": draw.choice([4, 20, None])},
            {"kv_share": draw.choice([0.1, 0.5, None])},
            {"tier": draw.choice(["batch", None])},
        ]
        return draw.choice(wishes)
