"""The two places where a request waits inside the gateway: for a thread, and for its client to leave."""

import asyncio
import threading
from typing import Any

import pytest
from infer_engine.gateway.departure import Departure
from infer_engine.gateway.encoding import INLINE_CHARS, EncodingDesk
from infer_engine.gateway.errors import ApiError
from infer_engine.gateway.receipt import ClientGoneError
from infer_engine.gateway.settings import GatewaySettings
from support.gateway import until

LARGE = INLINE_CHARS + 1


async def test_small_work_is_done_in_place_and_large_work_in_a_thread() -> None:
    desk = EncodingDesk(GatewaySettings())
    assert await desk.run(threading.get_ident, 1) == threading.get_ident()
    assert await desk.run(threading.get_ident, LARGE) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await desk.run(lambda: 1 // 0, LARGE)


async def test_waiting_for_a_thread_is_bounded_and_who_leaves_keeps_the_turn_taken() -> None:
    desk = EncodingDesk(GatewaySettings(tokenizer_threads=1, max_tokenizer_waiting=1))
    gate, began = threading.Event(), threading.Event()

    def work() -> str:
        began.set()
        gate.wait(60)
        return "done"

    first = asyncio.create_task(desk.run(work, LARGE))
    await until(began.is_set, "the first thread")
    second = asyncio.create_task(desk.run(lambda: "second", LARGE))
    await asyncio.sleep(0)
    with pytest.raises(ApiError) as refusal:
        await desk.run(work, LARGE)
    assert refusal.value.status == 503
    assert refusal.value.response().headers["retry-after"] == "1"
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled()
    # A thread cannot be stopped: the second must not run beside it.
    await asyncio.sleep(0)
    assert not second.done()
    gate.set()
    assert await second == "second"


class Connection:
    """The receiving side of one: nothing comes until the client hangs up."""

    def __init__(self) -> None:
        self.hung_up = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.hung_up.wait()
        return {"type": "http.disconnect"}


async def test_departure_interrupts_whatever_is_awaited() -> None:
    connection = Connection()
    cleaned_up = False

    async def serve() -> None:
        nonlocal cleaned_up
        async with Departure(connection.receive):
            try:
                await asyncio.Event().wait()
            finally:
                cleaned_up = True

    serving = asyncio.create_task(serve())
    await asyncio.sleep(0)
    connection.hung_up.set()
    with pytest.raises(ClientGoneError):
        await serving
    assert cleaned_up


async def test_a_server_that_stops_is_no_departure() -> None:
    connection = Connection()

    async def serve() -> None:
        async with Departure(connection.receive):
            await asyncio.Event().wait()

    for client_left_too in (False, True):
        serving = asyncio.create_task(serve())
        await asyncio.sleep(0)
        if client_left_too:
            connection.hung_up.set()
            await asyncio.sleep(0)
        serving.cancel()
        await asyncio.wait({serving})
        assert serving.cancelled()


async def test_an_answered_request_can_no_longer_depart_and_nothing_is_left_running() -> None:
    connection = Connection()
    tasks = len(asyncio.all_tasks())
    async with Departure(connection.receive) as departure:
        departure.answered()
        connection.hung_up.set()
        await asyncio.sleep(0.01)
    async with Departure(Connection().receive):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == tasks


async def test_errors_pass_through() -> None:
    with pytest.raises(ValueError, match="mine"):
        async with Departure(Connection().receive):
            raise ValueError("mine")
