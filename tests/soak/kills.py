"""Kills replicas of a real server, one after another, under streams that are read through the gateway.

``python tests/soak/kills.py --kills 100``: each kill -9 hits a replica drawn at random, once all are ready
again and every stream has four new tokens. Prints one JSON document; the exit status is 1 when a stream broke
or differs, a block leaked, or a replica did not come back. ``--kills 0`` drains a replica instead.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx2
import msgspec
from infer_engine.protocol import Replica, Status
from soak.streams import Client, Heard, Verdict, asks
from support.server import UNHURRIED, EngineServer, serving

NEW_TOKENS = 4
READY_TIMEOUT_S = 90.0
POLL_S = 0.02


@dataclass(frozen=True)
class Outcome:
    kills: int
    streams: int
    #: Why streams are broken or differ, and what else does not hold.
    faults: list[str]
    ties: int
    moves: int
    leaked_blocks: int


async def under_streams(
    server: EngineServer,
    disturb: Callable[["Scene"], Awaitable[int]],
    *,
    streams: int,
    max_tokens: int,
) -> Outcome:
    """Undisturbed answers first, then the same again and again while ``disturb`` is at work."""
    clients = [Client(ask) for ask in asks(streams, max_tokens)]
    async with server.async_gateway() as http, server.async_control() as control:
        expected = list(await asyncio.gather(*(client.once(http) for client in clients)))
        stop = asyncio.Event()
        verdict = Verdict()
        scene = Scene(server, control, clients)
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.over_and_over(http, stop))
            try:
                kills = await disturb(scene)
            finally:
                stop.set()
        faults = _judge(clients, expected, verdict)
        status = await scene.until_idle()
    leaked = sum(replica.kv.used or 0 for replica in status.replicas)
    violations = sum(replica.invariant_violations or 0 for replica in status.replicas)
    if violations:
        faults.append(f"{violations} invariant violations")
    return Outcome(kills, verdict.streams, faults, verdict.ties, scene.moves, leaked)


def _judge(clients: list[Client], expected: list[Heard], verdict: Verdict) -> list[str]:
    for client, one in zip(clients, expected, strict=True):
        if not one.is_whole:
            verdict.faults.append(f"the undisturbed one: {one.error}")
        for heard in client.before:
            verdict.judge(client.ask, heard, one)
    return verdict.faults


class Scene:
    """A server under streams, as whoever disturbs it sees it."""

    def __init__(self, server: EngineServer, control: httpx2.AsyncClient, clients: list[Client]) -> None:
        self.server = server
        self.control = control
        self.clients = clients
        self.moves = 0

    async def status(self) -> Status:
        return msgspec.json.decode((await self.control.get("/control/v1/state")).content, type=Status)

    async def ready(self) -> Status:
        """Once every replica is ready."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while True:
            status = await self.status()
            if all(replica.state == "ready" for replica in status.replicas):
                return status
            states = [(replica.id, replica.state, replica.error) for replica in status.replicas]
            assert time.monotonic() < deadline_s, f"not ready again: {states}"
            await asyncio.sleep(POLL_S)

    async def reborn(self, victim: Replica) -> None:
        """Once another life of it has begun."""
        while True:
            now = next(each for each in (await self.status()).replicas if each.id == victim.id)
            if now.incarnation > victim.incarnation:
                return
            await asyncio.sleep(POLL_S)

    async def new_tokens(self) -> None:
        """Once every stream has some."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        marks = [client.heard_tokens + NEW_TOKENS for client in self.clients]
        while any(client.heard_tokens < mark for client, mark in zip(self.clients, marks, strict=True)):
            broken = [
                each.before[-1] for each in self.clients if each.before and not each.before[-1].is_whole
            ]
            assert not broken, f"a stream broke: {broken[0]}"
            assert time.monotonic() < deadline_s, "a stream stands still"
            await asyncio.sleep(POLL_S)

    async def until_idle(self) -> Status:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while True:
            status = await self.status()
            busy = any(replica.running or replica.waiting or replica.kv.used for replica in status.replicas)
            if not busy or time.monotonic() > deadline_s:
                answer = await self.control.get("/control/v1/events", params={"limit": "10000"})
                self.moves = sum(event["kind"] == "move" for event in answer.json()["events"])
                return status
            await asyncio.sleep(POLL_S)


def killing(kills: int, seed: int) -> Callable[[Scene], Awaitable[int]]:
    random = Random(seed)

    async def kill(scene: Scene) -> int:
        for _ in range(kills):
            await scene.ready()
            await scene.new_tokens()
            victim = random.choice((await scene.ready()).replicas)
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            await scene.reborn(victim)
        await scene.ready()
        await scene.new_tokens()
        return kills

    return kill


async def _all_were_moved(scene: Scene, had: set[str]) -> None:
    """By the order of events, which is that in which things happened, however late anybody looks."""
    answer = await scene.control.get("/control/v1/events", params={"limit": "10000"})
    events = answer.json()["events"]
    of_r0 = [number for number, event in enumerate(events) if event["replica"] == "r0"]
    began = max(number for number in of_r0 if events[number]["reason"] == "draining")
    ended_before = {event["request"] for event in events[:began] if event["kind"] == "finish"}
    moved = {events[number]["request"] for number in of_r0 if events[number]["kind"] == "move"}
    assert had - ended_before
    assert had - ended_before <= moved, "drained only because some of them had ended"


async def draining(scene: Scene) -> int:
    """Drain the first replica by migration: it is drained while every stream it had still goes on."""
    await scene.new_tokens()
    running = {"replica": "r0", "state": "running"}
    had = (await scene.control.get("/control/v1/requests", params=running)).json()["requests"]
    body = {"mode": "migrate", "reason": "soak"}
    answer = await scene.control.post("/control/v1/replicas/r0:drain", json=body)
    assert answer.status_code == 200, answer.text
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while next(each for each in (await scene.status()).replicas if each.id == "r0").state != "drained":
        assert time.monotonic() < deadline_s, "not drained in time"
        await asyncio.sleep(POLL_S)
    await _all_were_moved(scene, {row["id"] for row in had})
    await scene.new_tokens()
    await scene.control.post("/control/v1/replicas/r0:undrain", json={})
    return 0


def run(kills: int, *, streams: int = 32, max_tokens: int = 120, seed: int = 1) -> Outcome:
    """On a server of its own with two replicas of a tiny model."""
    replica = {"kv_blocks": 1024, "max_running": 64, "token_budget": 256}
    # Who is drained of its streams has them still when it hears of it.
    layers = 2 if kills else UNHURRIED // 3
    with serving(replicas=2, layers=layers, replica=replica) as server:
        disturb = killing(kills, seed) if kills else draining
        return asyncio.run(under_streams(server, disturb, streams=streams, max_tokens=max_tokens))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    outcome = run(given.kills, streams=given.streams, max_tokens=given.max_tokens, seed=given.seed)
    print(json.dumps(asdict(outcome)))
    return 1 if outcome.faults or outcome.leaked_blocks else 0


if __name__ == "__main__":
    raise SystemExit(main())
