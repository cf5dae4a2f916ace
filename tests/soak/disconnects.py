"""Clients that leave: streaming or not, while queued, in mid-answer and at the last token, by FIN, by RST or
by reading no more. After each one all blocks are back within a step of the moment when the gateway noticed.

As a program, 50 of each: ``python tests/soak/disconnects.py [REPEATS]``. The gateway, the fleet and the
scheduler are the real ones; the model's time is simulated.
"""

import asyncio
import itertools
import json
import socket
import struct
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parent.parent))

from infer_engine.fleet.feed import FeedItem
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, GenerationSpec
from infer_engine.fleet.simulated import simulated_fleet
from infer_engine.gateway.app import build_gateway
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.listener import Listener
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import Step
from infer_engine.replica.virtual_clock import PacedClock
from infer_engine.settings import ReplicaSettings, ServerSettings
from support.tiny_model import write_tiny_gguf

How = Literal["FIN", "RST", "slow"]
When = Literal["queued", "mid", "last"]
MOST_RUNNING = 8
TOKENS = 20
#: A step takes about 10 ms.
SPEED = 0.5
#: An answer that does not fit the buffers between the server and a client that reads nothing.
FLOOD_TOKENS = 4_000
WITHIN_S = 30.0
POLL_S = 0.003
PATH = "/v1/completions"


@dataclass(frozen=True)
class Cell:
    stream: bool
    when: When
    how: How


CELLS = [
    Cell(*each)
    for each in itertools.product((True, False), ("queued", "mid", "last"), ("FIN", "RST", "slow"))
]


@dataclass
class Bench:
    """A served fleet of one replica, and what happened in it."""

    fleet: Fleet
    port: int
    listener: Listener
    kv_blocks: int
    #: Steps told so far, and the last of them.
    steps: int = 0
    last: Step | None = None
    #: By request id: how many steps had been told when the gateway asked for its end, and when it ended.
    noticed_after: dict[str, int] = field(default_factory=dict[str, int])
    ended_after: dict[str, int] = field(default_factory=dict[str, int])
    #: Requests at the fleet, by their clients' labels.
    taken: dict[str, Generation] = field(default_factory=dict[str, Generation])
    #: Clients that read nothing and wait in the queue: nothing of that can be noticed yet.
    waiting: "list[tuple[Caller, Generation]]" = field(default_factory=list)

    def watch(self) -> None:
        self.fleet.feed.subscribe(self._hear)
        cancel = self.fleet.cancel

        def noticed(request_id: str, **asked: Any) -> bool:
            if asked.get("code") == "client_disconnected":
                self.noticed_after.setdefault(request_id, self.steps)
            return cancel(request_id, **asked)

        submit = self.fleet.submit_choices

        def taken(specs: Sequence[GenerationSpec]) -> list[Generation]:
            generations = submit(specs)
            self.taken[generations[0].spec.client_id or ""] = generations[0]
            return generations

        self.fleet.cancel = noticed  # type: ignore[method-assign]
        self.fleet.submit_choices = taken  # type: ignore[method-assign]

    def _hear(self, item: FeedItem) -> None:
        """Blocks are back when the report of a step has the request's end."""
        if isinstance(item, Step):
            self.steps += 1
            self.last = item
            for ended in item.finished:
                self.ended_after[ended.id] = self.steps

    def steps_until_gone(self, request_id: str) -> int | None:
        """Whole steps between the notice and the request's end: 0 when the next report has it, 1 when a step
        was under way. None when it ended by itself before anybody noticed."""
        noticed = self.noticed_after.get(request_id)
        return None if noticed is None else self.ended_after[request_id] - noticed - 1

    def assert_no_block_is_held(self) -> None:
        assert self.last is not None
        held = (self.last.kv_used, self.last.kv_free + self.last.kv_cached)
        assert held == (0, self.kv_blocks), self.last


@asynccontextmanager
async def served() -> AsyncGenerator[Bench]:
    with tempfile.TemporaryDirectory(prefix="icd-", dir="/tmp") as directory:
        tokenizer = Tokenizer.from_file(write_tiny_gguf(Path(directory) / "tiny.gguf"))
        settings = ServerSettings(
            simulate="8b@1xh100",
            speed=SPEED,
            replicas=1,
            replica=ReplicaSettings(kv_blocks=4096, max_running=MOST_RUNNING, host_blocks=0),
        )
        clock = PacedClock(settings.speed)
        fleet = simulated_fleet(
            settings,
            clock,
            wall=time.time,
            achieved_speed=lambda: None,
            vocabulary=tokenizer.encode("a b c d e"),
            run_dir=Path(directory) / "run",
        ).fleet
        app = build_gateway(
            fleet,
            tokenizer,
            model_name="m",
            context_length=131_072,
            settings=GatewaySettings(send_timeout_s=0.3, patience_s=0.05),
        )
        sock = socket.socket()
        # Small buffers, so that a client that reads nothing is noticed in thousands of bytes.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        sock.setblocking(False)
        listener = Listener(app, sock)
        bench = Bench(fleet, sock.getsockname()[1], listener, 4096)
        clock.start()
        await fleet.start()
        await listener.start()
        bench.watch()
        try:
            await until(lambda: fleet.ready, "a ready replica")
            yield bench
        finally:
            await fleet.stop()
            await clock.stop()
            await listener.close()


async def until(seen: Any, what: str) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not seen():
        assert time.monotonic() < deadline_s, f"never saw {what}"
        await asyncio.sleep(POLL_S)


class Caller:
    """A client on a socket of its own, with a buffer that is soon full."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    @classmethod
    async def ask(
        cls, bench: Bench, *, stream: bool, tokens: int, prompt: list[int]
    ) -> "tuple[Caller, Generation]":
        """The client, and its request at the fleet."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", bench.port))
        # The label tells this request from the others at the fleet.
        label = f"c{sock.getsockname()[1]}-{time.monotonic_ns()}"
        body = json.dumps(
            {
                "model": "m",
                "prompt": prompt,
                "max_tokens": tokens,
                "ignore_eos": True,
                "stream": stream,
                "user": label,
            }
        ).encode()
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\n\r\n"
        await loop.sock_sendall(sock, head.encode() + body)

        await until(lambda: label in bench.taken, "the request at the fleet")
        generation = bench.taken[label]
        return cls(sock), generation

    def leave(self, how: How) -> None:
        if how == "RST":
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how != "slow":
            self.sock.close()

    async def drain(self, seen: Any, what: str) -> None:
        """Read and forget until ``seen()``."""
        deadline_s = time.monotonic() + WITHIN_S
        while not seen():
            assert time.monotonic() < deadline_s, f"never saw {what}"
            try:
                self.sock.recv(65_536)
            except BlockingIOError:
                await asyncio.sleep(POLL_S)


async def leave_once(bench: Bench, cell: Cell, number: int) -> int | None:
    """Steps from the notice to the end; None where it ended by itself before."""
    flood = cell.how == "slow" and cell.stream and cell.when != "last"
    tokens = FLOOD_TOKENS if flood else TOKENS if cell.when == "last" else 20_000
    if cell.how == "slow" and not cell.stream:
        # A whole answer is written when it is complete: who does not read it holds no block any more.
        tokens = TOKENS
    caller, generation = await Caller.ask(
        bench, stream=cell.stream, tokens=tokens, prompt=[3 + number % 200] * 20
    )
    try:
        if cell.when == "queued":
            assert generation.admitted_s is None
        elif cell.when == "mid":
            await caller.drain(lambda: len(generation.emitted) >= 3, "three tokens")
        else:
            await caller.drain(lambda: len(generation.emitted) >= tokens - 1, "the last token but one")
        caller.leave(cell.how)
        if cell.when == "queued" and cell.how == "slow":
            bench.waiting.append((caller, generation))
            return None
        await until(lambda: generation.id in bench.ended_after, f"the end of {generation.id}")
        return bench.steps_until_gone(generation.id)
    finally:
        if (caller, generation) not in bench.waiting:
            caller.sock.close()


async def play(bench: Bench, cell: Cell, repeats: int) -> list[int | None]:
    """``repeats`` clients of one kind at once; AssertionError unless everything is back in a step."""
    blockers: list[tuple[Caller, Generation]] = []
    if cell.when == "queued":
        blockers = [
            await Caller.ask(bench, stream=False, tokens=100_000, prompt=[number + 3] * 20)
            for number in range(MOST_RUNNING)
        ]
        await until(lambda: all(each.admitted_s is not None for _, each in blockers), "all slots taken")
    group = [leave_once(bench, cell, number) for number in range(repeats)]
    steps = list(await asyncio.gather(*group))
    for caller, _ in blockers:
        caller.leave("FIN")
    for _, generation in (*blockers, *bench.waiting):
        await until(lambda generation=generation: generation.id in bench.ended_after, "the end of all")
    for caller, generation in bench.waiting:
        caller.sock.close()
        if cell.stream:
            steps.append(bench.steps_until_gone(generation.id))
    bench.waiting.clear()
    await until(lambda: not bench.fleet.rows() and not bench.listener.connections, "everything gone")
    bench.assert_no_block_is_held()
    late = [each for each in steps if each is not None and each > 1]
    assert not late, f"{cell}: the end came {late} steps after the notice"
    return steps


async def main(repeats: int) -> None:
    async with served() as bench:
        for cell in CELLS:
            left = repeats
            noticed = 0
            while left > 0:
                count = min(left, MOST_RUNNING)
                noticed += sum(each is not None for each in await play(bench, cell, count))
                left -= count
            sys.stdout.write(
                f"{'stream' if cell.stream else 'plain ':6} {cell.when:6} {cell.how:4} {repeats} left, "
                f"{noticed} noticed before the end, 0 blocks held, none later than a step\n"
            )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
