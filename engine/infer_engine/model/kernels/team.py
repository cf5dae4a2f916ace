"""The threads that compute a step together.

Between steps they sleep. Within one they wait for each other hundreds of times, so there they do it awake:
for as long as it usually takes, and then by giving the core to whoever else wants it.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from infer_engine.model.kernels.jit import compiled
from infer_engine.model.kernels.simd import allow_any_address

#: Looks at a counter before a thread offers its core to others: a microsecond or two.
_PATIENCE = 64
#: Counters are this many int64 apart: a cache line each. A phase has two: tasks taken, and tasks done.
STRIDE = 8
COUNTERS_PER_PHASE = 2 * STRIDE


def _atomic(kind: str) -> Any:
    def make(context: Any, address: Any, amount: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: list[Any]) -> Any:
            allow_any_address(builder)
            pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
            if kind == "add":
                return builder.atomic_rmw("add", pointer, arguments[1], "acq_rel")
            return builder.load_atomic(pointer, "acquire", 8)

        return types.int64(types.int64, types.int64), codegen

    return intrinsic(make)


_fetch_add = _atomic("add")
_fetch = _atomic("load")


def _call(name: str, result: Any) -> Any:
    def make(context: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: list[Any]) -> Any:
            function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, []), name)
            builder.call(function, [])
            return context.get_dummy_value()

        return types.void(), codegen

    return intrinsic(make)


_pause = _call("llvm.x86.sse2.pause", ir.VoidType())
_sched_yield = _call("sched_yield", ir.IntType(32))


@compiled
def claim(counters: Any, phase: int, amount: Any) -> int:
    """The first of ``amount`` tasks of ``phase`` that nobody has taken. Which thread computes what changes
    from step to step, and no result with it."""
    return _fetch_add(counters.ctypes.data + phase * 16 * STRIDE, amount)


@compiled
def complete(counters: Any, phase: int, mine: int, tasks: int) -> None:
    """Having done ``mine`` of the ``tasks`` of ``phase`` and found no more, wait until all are done.

    Tasks are waited for, not threads: one that somebody else keeps from its core holds up no other but by the
    task in its hands, and finds nothing left to do in the phases that it missed."""
    at = counters.ctypes.data + phase * 16 * STRIDE + 8 * STRIDE
    if mine:
        _fetch_add(at, mine)
    looks = 0
    while _fetch(at, 0) < tasks:
        looks += 1
        if looks < _PATIENCE:
            _pause()
        else:
            _sched_yield()


class Team:
    """``threads`` threads, the caller's own among them. Whoever makes it closes it."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._start()

    def _start(self) -> None:
        threads = self.threads
        self._process = os.getpid()
        self._work: Callable[[int], None] | None = None
        self._starts = [threading.Semaphore(0) for _ in range(threads - 1)]
        self._done = threading.Semaphore(0)
        self._members = [
            threading.Thread(target=self._run, args=(number,), name=f"kernels-{number}", daemon=True)
            for number in range(1, threads)
        ]
        for member in self._members:
            member.start()

    def run(self, work: Callable[[int], None]) -> None:
        """``work(thread)`` on all at once; it must not raise."""
        if os.getpid() != self._process:  # a fork takes no threads along
            self._start()
        self._work = work
        for start in self._starts:
            start.release()
        work(0)
        for _ in self._starts:
            self._done.acquire()
        self._work = None  # it may hold on to whoever owns this team

    def close(self) -> None:
        """Idempotent."""
        self._work = None
        for start in self._starts:
            start.release()
        for member in self._members:
            member.join(timeout=1.0)
        self._starts, self._members = [], []

    def _run(self, number: int) -> None:
        start = self._starts[number - 1]
        while True:
            start.acquire()
            work = self._work
            if work is None:  # closed
                return
            work(number)
            del work  # it holds on to whoever owns this team, and the next one may be long in coming
            self._done.release()
