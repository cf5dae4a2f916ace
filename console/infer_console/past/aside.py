"""Long work on a thread of its own, which holds nobody's exit: threads of an executor are waited for when the
interpreter ends, and a console that was told to end does so at once."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises. Who is cancelled waits no more; the work itself goes on."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(call: Callable[[Any], None], what: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(lambda: None if done.done() else call(what))

    def run() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - it is the waiting one's
            tell(done.set_exception, error)
        else:
            tell(done.set_result, result)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return await done
