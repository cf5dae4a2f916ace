"""``python tests/soak/load.py``: a process that asks a gateway for completions, and what became of each.

Open loop (``rate_per_s``): Poisson arrivals that wait for nobody, and who is refused does not come back.
Closed loop (``clients``): so many at a time, each asking again as soon as it is answered, or a moment after a
refusal. What to do is one JSON document, the only argument; one comes back on stdout. As little work for each
byte as possible: it shares the machine with the server. Every request ends in exactly one way:

``whole``    200, [DONE], and as many tokens as were asked for
``refused``  429 or 503, before anything else
``cut``      200 and then an error frame, or an end without [DONE]
``failed``   any other status
``lost``     no answer: the connection was refused or ended, or nothing came within ``patience_s``
``left``     the client left on purpose, after a few tokens
"""

import asyncio
import contextlib
import json
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from random import Random
from typing import Literal

import msgspec

End = Literal["whole", "refused", "cut", "failed", "lost", "left"]
TOKENS = re.compile(rb'"completion_tokens":\s*(\d+)')
#: What a client that leaves has read before.
LEAVES_AFTER_BYTES = 2_000
#: How long a client of a closed loop waits after a refusal.
COMES_BACK_S = 0.1


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do. ``answer_tokens`` and ``prompt_tokens`` are drawn from, per request; of all requests so
    many are not streamed (``plain_share``) or left in mid-answer (``leaving_share``)."""

    host: str
    port: int
    model: str
    seconds: float
    rate_per_s: float | None = None
    clients: int | None = None
    answer_tokens: tuple[int, ...] = (32,)
    prompt_tokens: tuple[int, ...] = (20,)
    prefixes: int = 1
    plain_share: float = 0.0
    leaving_share: float = 0.0
    headers: dict[str, str] = {}
    patience_s: float = 60.0
    seed: int = 7


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """One request. Moments are seconds since the load began; ``first_s`` is that of the first token."""

    end: End
    asked_s: float
    first_s: float | None
    ended_s: float
    tokens: int
    status: int
    retry_after: bool
    reason: str


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """``behind_s``: how much later than it was due a request was sent, at worst."""

    seconds: float
    behind_s: float
    ended: list[Ended]

    def count(self) -> Counter[str]:
        return Counter(each.end for each in self.ended)

    def statuses(self) -> dict[str, int]:
        """Of those that were not served: by status and reason."""
        return dict(Counter(f"{e.status} {e.reason}".strip() for e in self.ended if e.end != "whole"))

    def tokens_in_time(self, within_s: float, began_s: float, ended_s: float) -> float:
        """Tokens per second of requests whole ``within_s`` of being asked that ended in the window."""
        good = (e for e in self.ended if e.end == "whole" and e.ended_s - e.asked_s <= within_s)
        return sum(e.tokens for e in good if began_s <= e.ended_s < ended_s) / (ended_s - began_s)


class _Call(asyncio.Protocol):
    """One request on a connection of its own."""

    def __init__(self, request: bytes, wanted: int, leaves: bool) -> None:
        self._request = request
        self._wanted = wanted
        self._leaves = leaves
        self._data = bytearray()
        self.first_at: float | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self.first_at is None and (b'"text":"' in data):
            self.first_at = time.monotonic()
        if self._leaves and len(self._data) > LEAVES_AFTER_BYTES:
            self.left = True
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def outcome(self) -> tuple[End, int, int, bool, str]:
        """How it ended, its tokens, its status, whether it was told when to come back, and why."""
        head, _, body = bytes(self._data).partition(b"\r\n\r\n")
        status = int(head[9:12]) if head.startswith(b"HTTP/1.1 ") else 0
        found = TOKENS.search(body)
        tokens = int(found[1]) if found else 0
        again = b"\r\nretry-after:" in head.lower()
        if self.left:
            return "left", 0, status, again, ""
        if status == 0:
            return "lost", 0, 0, False, ""
        if status in (429, 503):
            return "refused", 0, status, again, _reason(body)
        if status != 200:
            return "failed", 0, status, again, _reason(body)
        whole = (b"data: [DONE]" in body or b"text/event-stream" not in head) and tokens == self._wanted
        return ("whole" if whole else "cut"), tokens, status, again, "" if whole else _reason(body)


def _reason(body: bytes) -> str:
    found = re.search(rb'"code":\s*"([^"]*)"', body)
    return found[1].decode("latin-1") if found else ""


class Load:
    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.ended: list[Ended] = []
        self.behind_s = 0.0
        self._draw = Random(asked.seed)
        self._began_s = 0.0

    async def run(self) -> Told:
        self._began_s = time.monotonic()
        until_s = self._began_s + self.asked.seconds
        async with asyncio.TaskGroup() as group:
            if self.asked.rate_per_s is not None:
                await self._open(group, self.asked.rate_per_s, until_s)
            for _ in range(self.asked.clients or 0):
                group.create_task(self._closed(until_s))
        return Told(seconds=self.asked.seconds, behind_s=self.behind_s, ended=self.ended)

    async def _open(self, group: asyncio.TaskGroup, rate_per_s: float, until_s: float) -> None:
        due_s = self._began_s
        while (due_s := due_s + self._draw.expovariate(rate_per_s)) < until_s:
            now_s = time.monotonic()
            self.behind_s = max(self.behind_s, now_s - due_s)
            await asyncio.sleep(max(0.0, due_s - now_s))
            group.create_task(self._one(due_s))

    async def _closed(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            if await self._one(time.monotonic()) in ("refused", "lost"):
                await asyncio.sleep(COMES_BACK_S)

    async def _one(self, asked_s: float) -> End:
        """Its latency counts from when it was due, however late this process came to it."""
        asked, draw = self.asked, self._draw
        tokens = draw.choice(asked.answer_tokens)
        leaves = draw.random() < asked.leaving_share
        call = _Call(self._request(tokens, stream=draw.random() >= asked.plain_share), tokens, leaves)
        transport: asyncio.BaseTransport | None = None
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(asked.patience_s):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: call, asked.host, asked.port
                )
                await call.over
        if transport is not None:
            transport.close()
        end, got, status, again, reason = call.outcome()
        first_s = None if call.first_at is None else call.first_at - self._began_s
        ended_s = time.monotonic() - self._began_s
        self.ended.append(Ended(end, asked_s - self._began_s, first_s, ended_s, got, status, again, reason))
        return end

    def _request(self, tokens: int, *, stream: bool) -> bytes:
        asked, draw = self.asked, self._draw
        length = draw.choice(asked.prompt_tokens)
        prefix = 50 + draw.randrange(asked.prefixes)
        prompt = [prefix] * (length - length // 4) + [draw.randrange(50, 200) for _ in range(length // 4)]
        document = {"model": asked.model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        if stream:
            document |= {"stream": True, "stream_options": {"include_usage": True}}
        body = json.dumps(document).encode()
        lines = [
            "POST /v1/completions HTTP/1.1",
            f"host: {asked.host}",
            "content-type: application/json",
            "connection: close",
            f"content-length: {len(body)}",
            *(f"{name}: {value}" for name, value in asked.headers.items()),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


@contextmanager
def loading(asked: Asked) -> Generator[subprocess.Popen[bytes]]:
    """The load as a process of its own; ``told`` reads what it says at its end."""
    command = [sys.executable, __file__, msgspec.json.encode(asked).decode()]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        _end(process)


def told(process: subprocess.Popen[bytes], timeout_s: float) -> Told:
    out, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, f"the load ended with {process.returncode}"
    return msgspec.json.decode(out, type=Told)


def main() -> None:
    asked = msgspec.json.decode(sys.argv[1], type=Asked)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(Load(asked).run())))


if __name__ == "__main__":
    main()
