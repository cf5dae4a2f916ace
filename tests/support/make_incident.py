"""Makes ``tests/recordings/incident.icr`` anew from a simulated fleet, as a console records it: long prompts
fill two of three small pools, one replica is drained, a mark is set, and the headroom is changed.

``PYTHONPATH=engine:console:tests python -m support.make_incident``
"""

import asyncio
import contextlib
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx2
from infer_console.collector import Collector
from infer_console.connect import resolve
from infer_console.past.exporting import Exporting
from infer_console.sending import Answer
from infer_engine.protocol import Drain, Problem, SetHeadroom
from support.server import EngineServer, serving

RECORDING = Path(__file__).parent.parent / "recordings" / "incident.icr"
REPLICAS = ("r0", "r1", "r2")
#: Seconds from the beginning at which things happen.
FLOOD_S, DRAIN_S, MARK_S, SETTING_S, END_S = 6.0, 12.0, 20.0, 30.0, 40.0


def main() -> int:
    with serving(
        simulate="llama-70b@4xh100", replicas=3, replica={"kv_blocks": 2_000, "max_running": 24}, seed=3
    ) as server:
        target = resolve([server.control_url])
        assert target is not None
        collector = Collector(target)
        collector.start()
        clients = threading.Thread(target=lambda: asyncio.run(send(server)), daemon=True)
        clients.start()
        try:
            return play(collector)
        finally:
            collector.stop()


async def send(server: EngineServer) -> None:
    """Short requests all the time, long ones from ``FLOOD_S`` on."""
    gone: list[asyncio.Task[None]] = []
    async with server.async_gateway() as client:
        for number in range(round(END_S * 3)):
            long = number / 3 > FLOOD_S and number % 2 == 0
            words = 5_000 if long else 150 + 37 * (number % 7)
            body = {
                "model": "llama-3.1-70b",
                "prompt": f"{number} " + "word " * words,
                "max_tokens": 300 if long else 400,
                "ignore_eos": True,
            }
            gone.append(asyncio.create_task(ask(client, body)))
            await asyncio.sleep(1 / 3)
        await asyncio.gather(*gone)


async def ask(client: httpx2.AsyncClient, body: dict[str, Any]) -> None:
    with contextlib.suppress(httpx2.HTTPError):  # the server ends before the last answers
        await client.post("/v1/completions", json=body)


def play(collector: Collector) -> int:
    began_s = time.monotonic()

    def wait(until_s: float) -> None:
        time.sleep(max(0.0, began_s + until_s - time.monotonic()))

    collector.set_interest(REPLICAS, ("roster", "blocks"), 1.0)
    wait(DRAIN_S)
    done(collector.command(Drain(mode="wait", deadline_s=120.0), "r1"))
    wait(MARK_S)
    collector.timeline.mark(time.time(), "it got slow")
    wait(SETTING_S)
    done(collector.command(SetHeadroom(percent=25.0, replica="r0"), "r0"))
    wait(END_S)
    span = collector.timeline.span()
    assert span is not None
    RECORDING.parent.mkdir(exist_ok=True)
    RECORDING.unlink(missing_ok=True)
    exported = Exporting(
        timeline=collector.timeline, from_at=span[0] + 1.0, to_at=span[1], path=RECORDING
    ).run(None)
    print(exported, [mark.text for mark in collector.timeline.marks()])
    return 0


def done(answer: "Future[Answer]") -> None:
    result = answer.result(60)
    assert not isinstance(result, Problem), result


if __name__ == "__main__":
    sys.exit(main())
