"""``python -m infer_engine.benchmark.many_streams``: a process that holds many streams open and counts what
comes; one JSON line on stdout. As little work for each byte as possible: it shares the machine with the
server."""

import asyncio
import contextlib
import json
import resource
import sys
import time
from dataclasses import dataclass, field
from typing import Any

#: Connections being opened at one moment.
AT_ONCE = 64
#: How long all streams may take to have their first token.
OPEN_TIMEOUT_S = 90.0
FRAME = b'"text":"'


@dataclass(slots=True)
class Counted:
    """Of all streams together; ``statuses`` of those that were refused."""

    frames: int = 0
    read_bytes: int = 0
    begun: int = 0
    lost: int = 0
    statuses: dict[str, int] = field(default_factory=dict[str, int])


class Stream(asyncio.Protocol):
    def __init__(self, request: bytes, counted: Counted, began: asyncio.Event) -> None:
        self._request = request
        self._counted = counted
        self._began = began
        self._is_new = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        counted = self._counted
        counted.read_bytes += len(data)
        frames = data.count(FRAME)
        counted.frames += frames
        if self._is_new and frames:
            self._is_new = False
            counted.begun += 1
            self._began.set()
        elif self._is_new and not data.startswith((b"HTTP/1.1 200", b": ", b"8\r\n: ")):
            status = data[:12].decode("latin-1")
            counted.statuses[status] = counted.statuses.get(status, 0) + 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._counted.lost += 1
        self._began.set()


async def hold(host: str, port: int, model: str, streams: int, window_s: float) -> None:
    """Say when all streams have begun, and then what came in ``window_s`` seconds."""
    body = json.dumps(
        {
            "model": model,
            "prompt": [50, 51, 52, 53],
            "max_tokens": 100_000,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    request = head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body
    counted, turns = Counted(), asyncio.Semaphore(AT_ONCE)
    transports: list[asyncio.BaseTransport] = []
    events = [asyncio.Event() for _ in range(streams)]

    async def open_one(began: asyncio.Event) -> None:
        async with turns:
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: Stream(request, counted, began), host, port
            )
            transports.append(transport)

    opened_s = time.monotonic()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            await asyncio.gather(*(open_one(began) for began in events))
            for began in events:
                await began.wait()
    began_s, frames, read_bytes, lost = time.monotonic(), counted.frames, counted.read_bytes, counted.lost
    _say({"begun": counted.begun, "open_s": began_s - opened_s})
    await asyncio.sleep(window_s)
    taken_s = time.monotonic() - began_s
    _say(
        {
            "begun": counted.begun,
            "lost": counted.lost - lost,
            "statuses": counted.statuses,
            "window_s": taken_s,
            "frames": counted.frames - frames,
            "read_bytes": counted.read_bytes - read_bytes,
        }
    )
    await asyncio.to_thread(sys.stdin.read)  # whoever measures looks at the server first
    for transport in transports:
        transport.close()


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main() -> None:
    host, port, model, streams, window_s = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(hold(host, int(port), model, int(streams), float(window_s)))


if __name__ == "__main__":
    main()
