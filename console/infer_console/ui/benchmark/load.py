"""Requests that begin anew when they end: ``python -m infer_console.ui.benchmark.load URL N``, until it is
told to end."""

import asyncio
import random
import sys

import httpx2

#: Words of a prompt and tokens of an answer, from and to.
WORDS, TOKENS = (40, 400), (200, 600)
RETRY_S = 0.5
TIMEOUT_S = 300.0


async def run(url: str, number: int) -> None:
    limits = httpx2.Limits(max_connections=number + 8, max_keepalive_connections=number + 8)
    async with httpx2.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]
        async with asyncio.TaskGroup() as group:
            for each in range(number):
                group.create_task(_keep(client, model, random.Random(each)))


async def _keep(client: httpx2.AsyncClient, model: str, dice: random.Random) -> None:
    while True:
        prompt = " ".join(f"word{dice.randrange(10_000)}" for _ in range(dice.randint(*WORDS)))
        body = {"model": model, "prompt": prompt, "max_tokens": dice.randint(*TOKENS), "ignore_eos": True}
        answer = await client.post("/v1/completions", json=body)
        if answer.status_code != 200:
            await asyncio.sleep(RETRY_S)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2])))
