"""The thread that watches the server and keeps the state, so that a stalled terminal stops nothing.

Every method may be called from any thread and returns at once. The newest picture is always at ``picture``;
the callback given to ``on_picture`` is only a wake-up, at most ten times a second and at least once a second.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from infer_engine.protocol import Command

from infer_console import heap
from infer_console.connect import Target
from infer_console.diagnosis.judge import Judge
from infer_console.past.aside import aside
from infer_console.past.export import Exported
from infer_console.past.exporting import Exporting
from infer_console.past.flight import FlightRecords
from infer_console.past.taper import Taper
from infer_console.past.timeline import Timeline
from infer_console.past.told_before import PAST_S, judged_before, told_before
from infer_console.recording import RecordingError
from infer_console.sending import Answer, Sending, problem
from infer_console.sources.audit import AuditTail, records_of
from infer_console.sources.client import EngineClient
from infer_console.sources.engine import EngineSource, EngineStatus, describe
from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError
from infer_console.sources.interest import DEFAULT_HZ, Interest
from infer_console.sources.lookups import Lookups
from infer_console.state.audit import AuditPicture
from infer_console.state.fold import ConsoleState
from infer_console.state.picture import Environment, Picture

log = logging.getLogger(__name__)

#: Pictures are published at most this often, and at least this often, so that ages advance.
SHORTEST_PERIOD_S = 0.1
LONGEST_PERIOD_S = 1.0
STOP_TIMEOUT_S = 2.0
#: What is free is given back to the system that often, and when a piece of the past was read.
GIVE_BACK_S = 60.0
#: Who leaves waits so long for what is still being exported.
EXPORT_TIMEOUT_S = 60.0
#: Records of the audit in a recording that is exported.
MOST_RECORDS = 5_000


def stop_all(collectors: "Sequence[Collector]", timeout_s: float = STOP_TIMEOUT_S) -> None:
    """End them at the same time; what has not ended within ``timeout_s``, for all of them together, is left
    to the end of the process."""
    until_s = time.monotonic() + timeout_s
    for each in collectors:
        each.end()
    for each in collectors:
        each.stop(max(0.0, until_s - time.monotonic()))


class Collector:
    """``engine`` says how the console's own engine is doing; None when it watches somebody else's server."""

    def __init__(
        self,
        target: Target,
        *,
        read_only: bool = False,
        engine: Callable[[], EngineStatus] | None = None,
    ) -> None:
        self.target = target
        self.read_only = read_only or target.read_only
        self._engine = engine
        self._state = ConsoleState(
            target.url,
            read_only=self.read_only,
            embedded=engine is not None,
            environment=Environment(target.name, target.colour, target.production),
        )
        if engine is not None:
            self._state.link.starting("starting the engine")
        self._judge = Judge()
        self._audit_tail: AuditTail | None = None
        self._audit: AuditPicture | None = None
        #: What was, for those who scrub back; written on the collector's thread.
        self.timeline = Timeline(target.url)
        self._taper = Taper(self.timeline.own, self._state, self._judge)
        self._flight = FlightRecords(self.timeline, target.url, time.monotonic)
        self._picture = self._draw()
        self._wake: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: EngineClient | None = None
        self._source: EngineSource | None = None
        self._lookups: Lookups | None = None
        self._changed: asyncio.Event | None = None
        self._main: asyncio.Task[None] | None = None
        self._sending = Sending()
        self._fetching: set[asyncio.Task[None]] = set()
        #: The diagnosis was given what the flight recorder has, or is about to be.
        self._asked_before = False
        self._ending = False
        self._exporting: set[concurrent.futures.Future[Exported]] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)

    # --- from any thread

    @property
    def picture(self) -> Picture:
        """The newest picture; never None."""
        return self._picture

    def on_picture(self, wake: Callable[[], None] | None) -> None:
        """Call ``wake`` on the collector's thread whenever there is a new picture. It must return at once."""
        self._wake = wake

    def start(self) -> None:
        """Begin to collect; returns when calls are heard."""
        self._thread.start()
        self._started.wait(STOP_TIMEOUT_S)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """End the thread; False when it did not end in time (it is a daemon, so it cannot hold the
        process)."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def end(self) -> None:
        """Begin to end; ``stop`` waits for it."""
        self._call(self._cancel)

    def set_interest(
        self,
        replicas: Iterable[str],
        detail: Sequence[str] = ("roster", "blocks"),
        hz: float = DEFAULT_HZ,
    ) -> None:
        """Which replicas to be sent roster and block map of, and how often; replaces what was asked
        before."""
        interest = Interest.of(replicas, detail, hz)
        self._call(lambda: self._source and self._source.set_interest(interest))

    def watch_streams(self, requests: Iterable[str], content: bool = False) -> None:
        """Whose tokens to be told of, at most 16, and whether with their text; replaces what was asked
        before."""
        wanted = tuple(requests)
        self._call(lambda: self._source and self._source.watch_streams(wanted, content=content))

    def list_requests(self, wanted: bool) -> None:
        """Whether to list all requests of the fleet."""
        self._call(lambda: self._lookups and self._lookups.want_listing(wanted))

    def watch_demand(self, wanted: bool) -> None:
        """Whether to ask who waits longest, and what tenants may use."""
        self._call(lambda: self._lookups and self._lookups.want_demand(wanted))

    def watch_timeline(self, request: str | None) -> None:
        """Whose timeline to follow."""
        self._call(lambda: self._lookups and self._lookups.want_timeline(request))

    def watch_sentence(self, text: str | None) -> None:
        """What to have cut into tokens, at most ``MOST_SENTENCE`` characters."""
        self._call(lambda: self._lookups and self._lookups.want_sentence(text))

    def watch_audit(self, wanted: bool) -> None:
        """Whether to ask for the audit, which is in the picture then."""
        self._call(lambda: self._audit_tail and self._audit_tail.watch(wanted))

    def fetch_past(self, at: float) -> None:
        """Fetch what the server's flight recorder has around a moment; ``timeline`` has it when it came."""
        self._call(lambda: self._fetch_past(at))

    def audit_until(self, at: float | None) -> None:
        """Whether the audit is to be that of a moment (Unix seconds)."""
        self._call(lambda: self._audit_tail and self._audit_tail.until(at))

    @property
    def fetching(self) -> str:
        """What is being fetched of the past, or why not; empty when there is nothing to say."""
        return self._flight.progress

    def export(
        self, from_at: float, to_at: float, path: Path, *, redact: bool = True
    ) -> "concurrent.futures.Future[Exported]":
        """Write that time as a new recording: of what the server's flight recorder has, and of what this
        console was told where that has nothing. The future raises OSError or RecordingError."""
        future: concurrent.futures.Future[Exported] = concurrent.futures.Future()
        exporting = Exporting(timeline=self.timeline, from_at=from_at, to_at=to_at, path=path, redact=redact)
        self._exporting.add(future)
        future.add_done_callback(self._exporting.discard)
        if not self._call(lambda: self._begin_export(exporting, future)):
            exporting.run_into(future, None)
        return future

    def finish_exports(self, timeout_s: float = EXPORT_TIMEOUT_S) -> None:
        """Return when what is being exported is written. Where that is not waited for, a recording without
        its end is left, which can be read up to there."""
        concurrent.futures.wait(list(self._exporting), timeout_s)

    def command(
        self, command: Command, target: str | None = None, version: str | None = None
    ) -> "concurrent.futures.Future[Answer]":
        """Send a command; the future always gets a CommandResult or the Problem that says why not."""
        future = self._sending.expect()
        if self.read_only and not command.dry_run:
            future.set_result(problem(403, "read_only", "This console is read-only."))
        elif not self._call(lambda: self._sending.begin(self._client, command, target, version, future)):
            future.set_result(problem(503, "console_stopped", "The console is not collecting."))
        return future

    def _call(self, function: Callable[[], object]) -> bool:
        """Run on the collector's loop; False when there is none (any more)."""
        loop = self._loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop closed meanwhile
            return False
        return True

    # --- on the collector's thread

    def _run(self) -> None:
        try:
            asyncio.run(self._collect())
        except Exception as error:  # our own fault: the console stays and says so
            log.exception("the collector ended")
            self._state.link.lost(f"the console's collector failed: {type(error).__name__}: {error}")
            self._publish()
        finally:
            self._loop = None
            self._started.set()
            self._sending.answer_the_rest()

    async def _collect(self) -> None:
        self._changed = asyncio.Event()
        self._main = asyncio.current_task()
        async with EngineClient(self.target) as client:
            self._client = client
            self._source = EngineSource(
                client, self._state, self._changed.set, self._engine, self._taper.message
            )
            self._audit_tail = AuditTail(client, self._audit_told)
            self._lookups = Lookups(client, self._state.looked_up, self._changed.set, self._now)
            self._loop = asyncio.get_running_loop()
            self._started.set()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._source.run())
                    group.create_task(self._lookups.run())
                    group.create_task(self._publish_forever(self._changed))
                    group.create_task(self._audit_tail.run())
            except asyncio.CancelledError:
                return  # stop()
            finally:
                for task in (*self._sending.tasks, *self._fetching):
                    task.cancel()
                await asyncio.gather(*self._sending.tasks, *self._fetching, return_exceptions=True)

    def _audit_told(self, audit: AuditPicture) -> None:
        self._audit = audit
        if self._changed is not None:
            self._changed.set()

    def _cancel(self) -> None:
        self._ending = True
        if self._main is not None:
            self._main.cancel()

    async def _publish_forever(self, changed: asyncio.Event) -> None:
        given_back_s = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(LONGEST_PERIOD_S):
                    await changed.wait()
            except TimeoutError:
                pass  # nothing new but the time
            changed.clear()
            if self._state.sample(time.monotonic()):
                self._taper.sampled(time.monotonic())
                self._look_after_engine()
            self._publish()
            if time.monotonic() - given_back_s >= GIVE_BACK_S:
                given_back_s = time.monotonic()
                heap.give_back()
            await asyncio.sleep(SHORTEST_PERIOD_S)

    def _look_after_engine(self) -> None:
        """Its death is news even before the connection breaks."""
        engine = self._engine() if self._engine else None
        if engine is not None and engine.phase == "ended":
            self._state.link.lost(engine.message)

    def _publish(self) -> None:
        self._picture = self._draw()
        self._ask_before()
        wake = self._wake
        if wake is None:
            return
        try:
            wake()
        except Exception:  # the UI's fault must not end the collecting
            log.exception("the picture's callback failed")

    def _ask_before(self) -> None:
        """Once, when the fleet is on the screen: what the server recorded of the last minutes tells the
        diagnosis since when."""
        picture, client = self._picture, self._client
        if self._asked_before or picture.totals is None or picture.link.state != "live" or client is None:
            return
        self._asked_before = True
        if "recorder" in picture.capabilities:
            task = asyncio.ensure_future(self._know_before(client))
            self._fetching.add(task)
            task.add_done_callback(self._fetching.discard)

    async def _know_before(self, client: EngineClient) -> None:
        """In the background: the diagnosis of now goes on meanwhile, and is replaced."""
        server_at = self._taper.at(time.monotonic())
        try:
            content = await told_before(client, server_at - PAST_S)
            if content is None:
                return
            judge = await asyncio.to_thread(
                judged_before,
                content,
                self.target.url,
                shift_s=self._now() - self._taper.at(time.monotonic()),
                offset_s=self._now() - time.monotonic(),
                go_on=lambda: not self._ending,
            )
        except (RefusedError, UnreachableError, NotUnderstoodError, RecordingError) as failure:
            log.info("nothing is known of the time before: %s", failure)
            return
        self._judge.take(judge)
        self._publish()

    def _now(self) -> float:
        """The server's clock: its events, deadlines and leases are told in it."""
        return self._state.clock.at(time.time(), time.monotonic())

    def _draw(self) -> Picture:
        now_s = time.monotonic()
        wall = time.time()
        at = self._state.clock.at(wall, now_s)
        picture = self._judge.judged(self._state.picture(at, now_s), now_s)
        picture = dataclasses.replace(picture, audit=self._audit, ahead_s=at - wall)
        self._taper.drawn(picture, now_s)
        return picture

    def _begin_export(self, exporting: Exporting, future: "concurrent.futures.Future[Exported]") -> None:
        task = asyncio.ensure_future(self._export(exporting, future))
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)

    async def _export(self, exporting: Exporting, future: "concurrent.futures.Future[Exported]") -> None:
        content: bytes | None = None
        if self._client is not None:
            # Who may not read the audit exports without it.
            with contextlib.suppress(RefusedError, UnreachableError, NotUnderstoodError):
                page = await records_of(self._client, exporting.from_at, exporting.to_at, MOST_RECORDS)
                exporting = dataclasses.replace(exporting, records=page.records)
            # Where the server has nothing, what this console was told is the next best.
            with contextlib.suppress(RefusedError, UnreachableError, NotUnderstoodError):
                content = await self._flight.read(self._client, exporting.from_at, exporting.to_at)
        await aside(lambda: exporting.run_into(future, content))

    def _fetch_past(self, at: float) -> None:
        recorder = self._picture.fleet.recorder if self._picture.fleet is not None else None
        if self._client is None or recorder is None or recorder.from_at is None:
            return
        task = asyncio.ensure_future(self._fetch(self._client, at, recorder.from_at))
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)

    async def _fetch(self, client: EngineClient, at: float, earliest_at: float) -> None:
        try:
            await self._flight.fetch(client, at, earliest_at)
        except (RefusedError, UnreachableError, NotUnderstoodError) as failure:
            self._flight.progress = f"not fetched: {describe(failure)}"
        except RecordingError as error:
            self._flight.progress = f"not fetched: {error}"
        self._publish()
        heap.give_back()
