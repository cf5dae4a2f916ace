"""Requests that begin anew when they end: ``python bench/scale_load.py URL MODEL N``, until told to end.

Short prompts and long answers that are not streamed, over bare connections: as little work as possible, for
it shares the machine with what is measured.
"""

import asyncio
import json
import random
import sys
from urllib.parse import urlsplit

#: Tokens of an answer, from and to: at about a step a second they outlast a measurement, and some end in it.
TOKENS = (100, 1_200)
#: Connections that are opened at one moment.
AT_ONCE = 16
RETRY_S = 1.0


async def keep(host: str, port: int, model: str, number: int, gate: asyncio.Semaphore) -> None:
    dice = random.Random(number)
    while True:
        prompt, tokens = [dice.randrange(9_000) for _ in range(16)], dice.randint(*TOKENS)
        ask = {"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        body = json.dumps(ask).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        try:
            async with gate:
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(
                    f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
                )
                await writer.drain()
            answer = await reader.read()
            writer.close()
            if answer.startswith(b"HTTP/1.1 200"):
                continue
        except OSError:
            pass  # it is asked again
        await asyncio.sleep(RETRY_S)


async def main(url: str, model: str, number: int) -> None:
    where = urlsplit(url)
    host, port = where.hostname or "", where.port or 0
    gate = asyncio.Semaphore(AT_ONCE)
    await asyncio.gather(*(keep(host, port, model, each, gate) for each in range(number)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
