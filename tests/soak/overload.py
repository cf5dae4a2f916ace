"""Ten times more requests than can be served, for a minute: what is served stays as much as before, others are
told when to come back, operators are still answered, and afterwards everything is as it was.

``python tests/soak/overload.py [SECONDS]``: a server of its own on a tiny real model.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import httpx2
from support.server import EngineServer, serving

TIMES = 10
TOKENS = 32
STREAMS = 16
PEAK_S = 10.0
CONTROL_PERIOD_S = 0.2
WANTED_GOODPUT, WANTED_CONTROL_S, WANTED_RECOVERY_S = 0.9, 0.25, 10.0
BODY = {"model": "tiny", "prompt": [50] * 20, "max_tokens": TOKENS, "ignore_eos": True}


@dataclass
class Tally:
    served: list[float] = field(default_factory=list[float])
    refused: Counter[str] = field(default_factory=Counter[str])
    without_retry_after: int = 0
    control_s: list[float] = field(default_factory=list[float])

    def note(self, response: httpx2.Response, now_s: float) -> None:
        if response.status_code == 200:
            self.served.append(now_s)
            return
        self.refused[f"{response.status_code} {response.headers.get('x-request-dropped-reason')}"] += 1
        self.without_retry_after += "retry-after" not in response.headers

    def rate(self, began_s: float, ended_s: float) -> float:
        """Answers per second."""
        return sum(began_s <= each < ended_s for each in self.served) / (ended_s - began_s)


async def closed_loop(client: httpx2.AsyncClient, tally: Tally, until_s: float) -> None:
    async def one() -> None:
        while time.monotonic() < until_s:
            tally.note(await client.post("/v1/completions", json=BODY), time.monotonic())

    await asyncio.gather(*(one() for _ in range(STREAMS)))


async def open_loop(client: httpx2.AsyncClient, tally: Tally, rate_per_s: float, until_s: float) -> None:
    """Poisson arrivals; who is refused does not come back."""
    draw = random.Random(7)

    async def one() -> None:
        tally.note(await client.post("/v1/completions", json=BODY), time.monotonic())

    async with asyncio.TaskGroup() as group:
        due_s = time.monotonic()
        while due_s < until_s:
            due_s += draw.expovariate(rate_per_s)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            group.create_task(one())


async def ask_control(server: EngineServer, tally: Tally) -> None:
    async with server.async_control() as client:
        while True:
            began_s = time.monotonic()
            (await client.get("/control/v1/state")).raise_for_status()
            tally.control_s.append(time.monotonic() - began_s)
            await asyncio.sleep(CONTROL_PERIOD_S)


async def recovered_s(server: EngineServer, client: httpx2.AsyncClient, alone_s: float) -> float:
    """Until nobody waits and a request alone takes about as long as before."""
    began_s = time.monotonic()
    while True:
        asked_s = time.monotonic()
        response = await client.post("/v1/completions", json=BODY)
        took_s = time.monotonic() - asked_s
        totals = (await asyncio.to_thread(server.status)).totals
        if response.status_code == 200 and took_s < 2 * alone_s + 0.1 and not totals.waiting:
            return time.monotonic() - began_s
        if time.monotonic() - began_s > 60:
            return float("inf")


async def overload(server: EngineServer, seconds: float) -> list[str]:
    """What was found; lines that begin with ``NOT`` are not as wanted."""
    tally = Tally()
    async with server.async_gateway() as client:
        alone: list[float] = []
        for _ in range(5):
            asked_s = time.monotonic()
            (await client.post("/v1/completions", json=BODY)).raise_for_status()
            alone.append(time.monotonic() - asked_s)
        began_s = time.monotonic()
        await closed_loop(client, tally, began_s + PEAK_S)
        peak = tally.rate(began_s, began_s + PEAK_S)
        control = asyncio.create_task(ask_control(server, tally))
        began_s = time.monotonic()
        await open_loop(client, tally, TIMES * peak, began_s + seconds)
        goodput = tally.rate(began_s, began_s + seconds)
        control.cancel()
        await asyncio.wait({control})
        recovery_s = await recovered_s(server, client, sorted(alone)[2])
    p99_s = sorted(tally.control_s)[int(0.99 * (len(tally.control_s) - 1))]
    return [
        _line(goodput >= WANTED_GOODPUT * peak, f"goodput {goodput:.1f}/s of a peak of {peak:.1f}/s"),
        _line(sum(tally.refused.values()) > 0, f"refused {dict(tally.refused)}"),
        _line(not tally.without_retry_after, f"refused without Retry-After {tally.without_retry_after}"),
        _line(p99_s < WANTED_CONTROL_S, f"control API p99 {1e3 * p99_s:.0f} ms of {len(tally.control_s)}"),
        _line(recovery_s < WANTED_RECOVERY_S, f"recovered in {recovery_s:.1f} s"),
        _line(not server.errors, f"errors logged {len(server.errors)}"),
    ]


def _line(as_wanted: bool, what: str) -> str:
    return what if as_wanted else f"NOT AS WANTED: {what}"


def main(seconds: float = 60.0) -> int:
    with serving(replicas=1, replica={"max_running": STREAMS, "max_waiting": 2 * STREAMS}) as server:
        lines = asyncio.run(overload(server, seconds))
    sys.stdout.write("\n".join(lines) + "\n")
    return int(any(line.startswith("NOT") for line in lines))


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
