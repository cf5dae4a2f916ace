"""Reading somebody else's pages beside the loop that everything else shares: a page may have megabytes, and
the parser is Python."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

#: Reading so much takes a millisecond or two.
SMALL_BYTES = 4 * 1024

T = TypeVar("T")
#: One thread: several would take turns with whoever draws or streams, which then had one turn of many. What
#: is given up before its turn came is never read.
_READER = ThreadPoolExecutor(1, thread_name_prefix="pages")


async def beside(read: Callable[[], T], size_bytes: int) -> T:
    """What ``read`` returns or raises, of pages of that size."""
    if size_bytes <= SMALL_BYTES:
        return read()
    return await asyncio.get_running_loop().run_in_executor(_READER, read)
