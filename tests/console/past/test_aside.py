"""Long work on a thread that holds nobody's exit."""

import asyncio
import subprocess
import sys
import threading

import pytest
from infer_console.past.aside import aside

LEAVES = """
import asyncio, threading
from infer_console.past.aside import aside
async def main():
    began = threading.Event()
    def work():
        began.set()
        threading.Event().wait()
    task = asyncio.create_task(aside(work))
    await asyncio.sleep(0)
    began.wait()
    task.cancel()
asyncio.run(main())
print("left")
"""


async def test_what_work_gives_or_raises_comes_back() -> None:
    assert await aside(lambda: threading.current_thread().daemon)
    with pytest.raises(ZeroDivisionError):
        await aside(lambda: 1 // 0)


async def test_who_is_cancelled_leaves_the_work_to_itself() -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(60)
        done.set()

    task = asyncio.create_task(aside(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    assert await asyncio.to_thread(done.wait, 60)


def test_a_process_ends_while_work_is_under_way() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")
