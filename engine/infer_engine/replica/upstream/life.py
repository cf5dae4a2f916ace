"""One life of an upstream: from the first look at somebody else's server until it is gone, hangs, or is not
what it was. It is never started or ended by us; a life that ends is followed by another look."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable

import httpx2

from infer_engine.core.dispatcher import Dispatcher
from infer_engine.core.limits import LimitsError
from infer_engine.core.reported_pool import ReportedPool
from infer_engine.core.request import Request
from infer_engine.core.shown_slots import ShownSlots
from infer_engine.foreign.reading import Reading
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.replica.in_process import FAILED, KILLED, InProcess, Life
from infer_engine.replica.limits_at_start import starting_limits
from infer_engine.replica.messages import (
    Failed,
    FromReplica,
    Loading,
    Ready,
    ReplicaConfig,
    ToReplica,
)
from infer_engine.replica.upstream.books import Books
from infer_engine.replica.upstream.dialect import Ask
from infer_engine.replica.upstream.probe import Probe, Server, Unready, Unsuitable
from infer_engine.replica.upstream.stream import Stream, Told
from infer_engine.replica.upstream.taken_on import Elsewhere, client_of, info_of, most_running
from infer_engine.replica.upstream.target import Target
from infer_engine.replica.upstream.upstream_loop import UpstreamLoop
from infer_engine.replica.wire import SERVER_HWM, WILL_FAIL_AGAIN, identity

log = logging.getLogger(__name__)

#: How often the server is looked at, and the pause after a look that found nobody while none is there yet:
#: first so long, then twice as long, up to.
LOOK_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
#: What it said last is believed for so long.
STALE_S = 5.0
#: A server where nobody listens is looked at once more after this, then it is gone.
AGAIN_S = 0.2
#: So many streams in a row that break end a life, though the server answers looks.
MOST_BROKEN = 6
#: What ends a life may take so long to be closed.
CLOSE_S = 2.0
TAIL_LINES = 12
MOST_CHARS = 300


def printable(text: str) -> str:
    """What a server says may end on somebody's terminal: a line of bounded length, and nothing that moves a
    cursor."""
    return "".join(each if each.isprintable() else "·" for each in text[:MOST_CHARS])


class UpstreamReplica(Life):
    """What a launcher hands out, and the link of its loop."""

    def __init__(
        self,
        replicas: InProcess["UpstreamReplica"],
        config: ReplicaConfig,
        target: Target,
        tokenizer: Tokenizer,
        stall_s: float,
        served: dict[str, str],
        look_s: float = LOOK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.identity = identity(config.replica, config.incarnation)
        #: Whose that is is not told.
        self.pid = None
        self._replicas = replicas
        self._target = target
        self._tokenizer = tokenizer
        self._stall_s = stall_s
        #: What the servers served last, by replica: it outlives a life.
        self._served = served
        self._look_s = look_s
        self._clock = clock
        self._inbox: deque[ToReplica] = deque()
        self._loop: UpstreamLoop | None = None
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._turn_due_s = float("inf")
        self._look_now = asyncio.Event()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._code: int | None = None
        self._looked_s = clock()
        self._slots = ShownSlots()
        self._probe = Probe(target.address, target.token, tokenizer)
        self._http: httpx2.AsyncClient | None = None
        #: Streams that have not let go of their connection.
        self._reading: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._live(), name=f"upstream-{config.replica}")

    # --- what the fleet sees -------------------------------------------------------------------------------

    async def wait(self) -> int:
        await asyncio.wait({self._task})
        return KILLED if self._code is None else self._code

    def log_tail(self) -> str:
        return "\n".join(self._tail) or "(it is a server that others started: its log is theirs)"

    # --- the way to and from the fleet ---------------------------------------------------------------------

    def hear(self, message: ToReplica) -> bool:
        if len(self._inbox) >= SERVER_HWM:
            return False
        self._inbox.append(message)
        self._wake()
        return True

    def receive(self, wait_s: float, most: int) -> list[ToReplica]:
        """Never waits: it is asked again when there is something."""
        return [self._inbox.popleft() for _ in range(min(most, len(self._inbox)))]

    def send(self, message: FromReplica) -> None:
        if self._code is None:
            self._replicas.deliver(self, message)

    def offer(self, message: FromReplica) -> bool:
        """Observations, unless the server itself has said nothing for long: then nothing is known."""
        now_s = self._clock()
        if now_s - max(self._looked_s, self._loop.heard_s if self._loop else 0.0) > STALE_S:
            return False
        self.send(message)
        return True

    # --- turns ---------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._at(self._clock())

    def _at(self, due_s: float) -> None:
        if self._loop is None or self._code is not None or due_s >= self._turn_due_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._turn_due_s = due_s
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due_s - self._clock()), self._turn)

    def _turn(self) -> None:
        self._turn_due_s = float("inf")
        loop = self._loop
        if loop is None or self._code is not None:
            return
        try:
            loop.turn()
        except Exception as error:
            log.exception("upstream %s failed", self.config.replica)
            self._die(f"{type(error).__name__}: {error}")
            return
        if loop.stopping:
            self._end(0)
            return
        self._at(self._clock() + (0.0 if self._inbox else loop.wait_s()))

    # --- from the first look to the end --------------------------------------------------------------------

    def _end(self, code: int) -> None:
        """Once. What it had not said yet is never heard."""
        if self._code is not None:
            return
        self._code = code
        self._replicas.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        self._inbox.clear()
        if asyncio.current_task() is not self._task:  # else it goes on to its end, and cleans up
            self._task.cancel()

    def _die(self, error: str, code: int = FAILED) -> None:
        error = printable(error)
        self._note(error)
        self.send(Failed(incarnation=self.config.incarnation, error=error))
        self._end(code)

    def _note(self, trouble: str) -> None:
        trouble = printable(trouble)
        if not self._tail or not self._tail[-1].endswith(trouble):
            self._tail.append(f"{time.strftime('%H:%M:%S')} {self._target.address.place}: {trouble}")

    async def _live(self) -> None:
        try:
            server = await self._taken_on()
            if server is not None:
                self._begin(server)
                await self._look_after(Books(server.reading))
        except asyncio.CancelledError:
            pass  # it was ended, and cleans up
        except Exception as error:
            log.exception("upstream %s failed", self.config.replica)
            self._die(f"{type(error).__name__}: {error}")
        finally:
            if self._code is None:
                self._end(FAILED)
            await self._close()

    async def _close(self) -> None:
        if self._loop is not None:
            self._loop.close()
        for task in self._reading:
            task.cancel()
        if self._reading:
            await asyncio.wait(self._reading, timeout=CLOSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._probe.aclose()
                if self._http is not None:
                    await self._http.aclose()

    async def _taken_on(self) -> Server | None:
        """Once it is there and fit; None, with the reason told, where it never will be. Tries for ever."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await self._probe.take_on()
            except Unsuitable as error:
                self._die(str(error), WILL_FAIL_AGAIN)
                return None
            except Unready as error:
                trouble = printable(f"{self._target.address.place}: {error}")
            self._note(trouble)
            self.send(
                Loading(incarnation=self.config.incarnation, progress=None, what="waiting", trouble=trouble)
            )
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    def _begin(self, server: Server) -> None:
        """It takes requests from now on, unless that is another model than in the life before: nobody should
        take the one for the other, so that is said first, as the end of a life of its own."""
        settings, target, model = self.config.settings, self._target, server.reading.model
        before = self._served.get(self.config.replica, model)
        self._served[self.config.replica] = model
        if before != model:
            self._die(f"it serves another model now: {model[:80]}, and served {before[:80]}")
            return
        books = Books(server.reading)
        info = info_of(server, target, settings, books, self._tokenizer.vocab_size)
        try:
            limits = starting_limits(settings, info).changed(max_running=most_running(settings, books))
            pool = ReportedPool(info.kv_blocks, info.block_size)
            dispatcher = Dispatcher(pool, limits, info.context_length)
        except LimitsError as error:
            self._die(str(error), WILL_FAIL_AGAIN)
            return
        http = self._http = client_of(target, settings)

        def open_stream(request: Request, tell: Callable[[Stream, Told], None]) -> Stream:
            stream = Stream(request, self._ask(request), server.dialect, http, tell, target.token)
            self._reading.add(stream.task)
            stream.task.add_done_callback(self._reading.discard)
            return stream

        self._looked_s = self._clock()
        self._loop = UpstreamLoop(
            incarnation=self.config.incarnation,
            dispatcher=dispatcher,
            runner=Elsewhere(info),
            link=self,
            clock=self._clock,
            open_stream=open_stream,
            on_broken=self._broken,
            wake=self._wake,
        )
        self._report(books)
        if server.note:
            self._note(server.note)
            log.warning("replica %s: %s: %s", self.config.replica, target.address.place, server.note)
        self.send(
            Ready(
                incarnation=self.config.incarnation,
                info=info,
                admit_limit=limits.admit_limit,
                batch_limit=limits.batch_limit,
                max_running=limits.max_running,
                token_budget=limits.token_budget,
                limits=limits.by_name(),
                stall_s=self._stall_s,
            )
        )
        self._wake()

    def _ask(self, request: Request) -> Ask:
        stops = request.stop_token_ids
        return Ask(
            prompt=request.tokens(0, request.total_tokens),
            max_tokens=request.max_tokens - len(request.output),
            min_tokens=max(0, request.sampling.min_tokens - len(request.output)),
            sampling=request.sampling,
            stop_token_ids=tuple(sorted(stops)),
            ends=bool(stops & self._tokenizer.stop_ids),
        )

    # --- looking after it ----------------------------------------------------------------------------------

    def _broken(self, why: str) -> None:
        """A stream broke: whether the server is still there is to be seen at once."""
        self._note(f"a stream broke: {why}")
        self._look_now.set()

    async def _look_after(self, books: Books) -> None:
        refused = 0
        while self._loop is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(AGAIN_S, self._look_s) if refused else self._look_s):
                    await self._look_now.wait()
            self._look_now.clear()
            if self._loop.broken_in_a_row >= MOST_BROKEN:
                self._die(f"{MOST_BROKEN} streams in a row broke: {self._tail[-1] if self._tail else '?'}")
                return
            try:
                reading = await self._probe.look()
            except (Unready, Unsuitable) as error:
                self._note(str(error))
                refused = refused + 1 if isinstance(error, Unready) and error.nobody else 0
                if refused > 1 or self._silent_s() > self._stall_s:
                    self._die(f"{self._target.address.place} does not answer: {error}")
                    return
                if self._clock() - self._looked_s > STALE_S:
                    self._pool().grow_stale()
                continue
            refused = 0
            if not self._take(reading, books):
                return

    def _take(self, reading: Reading, books: Books) -> bool:
        """False when it is no more what it was."""
        loop = self._loop
        assert loop is not None
        now_s = self._clock()
        self._looked_s = now_s
        look = books.take(reading)
        if look.trouble is not None:
            self._served[self.config.replica] = reading.model
            self._die(look.trouble)
            return False
        if look.restarted and not loop.streams:
            # Had it restarted beneath a running stream, that would have broken.
            self._die("it was restarted: its counters began anew")
            return False
        self._report(books)
        self._learn_slots(books, loop, now_s)
        loop.cleared(moved=look.moved, asleep=look.asleep)
        return True

    def _learn_slots(self, books: Books, loop: UpstreamLoop, now_s: float) -> None:
        loop.dispatcher.slots = self._slots.look(
            running=books.running,
            waiting=books.waiting,
            in_flight=loop.streams,
            decoding=loop.dispatcher.decoding(),
            now_s=now_s,
        )

    def _silent_s(self) -> float:
        return self._clock() - max(self._looked_s, self._loop.heard_s if self._loop else 0.0)

    def _pool(self) -> ReportedPool:
        assert self._loop is not None
        pool = self._loop.dispatcher.pool
        assert isinstance(pool, ReportedPool)
        return pool

    def _report(self, books: Books) -> None:
        size = self.config.settings.block_size
        used, cached = books.kv_used_tokens, books.kv_cached_tokens
        self._pool().report(
            None if used is None else -(-used // size),
            None if cached is None else cached // size,
            self._clock(),
        )
