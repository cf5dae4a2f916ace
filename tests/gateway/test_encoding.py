"""How many prompts wait to be tokenized, as the gateway's status tells it."""

import asyncio
import threading

from infer_engine.gateway.encoding import INLINE_CHARS, EncodingDesk
from infer_engine.gateway.load import GatewayLoad
from infer_engine.gateway.settings import GatewaySettings


async def test_what_waits_for_a_thread_is_told() -> None:
    desk = EncodingDesk(GatewaySettings(tokenizer_threads=1, max_tokenizer_waiting=7))
    load = GatewayLoad()
    assert load.status(None).tokenizer_queue is None
    load.tokenizer = lambda: desk.queue
    assert load.status(None).tokenizer_queue == 0
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        go_on.wait(30)
        return "done"

    tasks = [asyncio.create_task(desk.run(slow, INLINE_CHARS + 1)) for _ in range(3)]
    await asyncio.to_thread(begun.wait, 30)
    status = load.status(None)
    assert (status.tokenizer_queue, status.max_tokenizer_queue) == (2, 7)
    go_on.set()
    assert await asyncio.gather(*tasks) == ["done"] * 3
    assert load.status(None).tokenizer_queue == 0
