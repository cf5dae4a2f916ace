"""Leaving after a signal: an answer under way is waited for, where no app is active in the context."""

import asyncio
from types import SimpleNamespace
from typing import Any

from infer_console.ui.departure import Departure


async def test_after_a_signal_an_answer_is_waited_for_and_then_it_leaves() -> None:
    left: list[int] = []
    gone = asyncio.Event()

    def leave(_status: int, return_code: int) -> None:
        left.append(return_code)
        gone.set()

    pacer = SimpleNamespace(awaiting=True, measured=True, leave=lambda: None)
    app: Any = SimpleNamespace(
        pacer=pacer,
        calling=SimpleNamespace(give_title_back=lambda: None),
        guard_exit=lambda _status: None,
        exit=leave,
    )
    asyncio.get_running_loop().call_soon(Departure(app, embedded=False).leave_now, 143)
    for _ in range(5):
        await asyncio.sleep(0)
    assert left == []
    pacer.awaiting = False
    async with asyncio.timeout(60):
        await gone.wait()
    assert left == [143]
