"""One engine server, watched for as long as the console lives: a lost connection is a state, never an end."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from infer_engine.protocol import PROTOCOL_VERSION, Envelope, Heartbeat, TokenDelta

from infer_console.sources.backoff import SHORTEST_S, Backoff
from infer_console.sources.client import EngineClient, MessageStream, actor
from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError
from infer_console.sources.interest import Interest
from infer_console.state.fold import ConsoleState
from infer_console.state.series import INTERVAL_S, SAMPLES

#: What was before is told this coarsely: a cell of a sparkline.
HISTORY_STEP_S = 20.0

Failure = UnreachableError | RefusedError | NotUnderstoodError

_envelopes = msgspec.json.Decoder(Envelope)
_token_deltas = msgspec.json.Decoder(TokenDelta)


class _Tag(msgspec.Struct):
    type: str = ""


class _Head(msgspec.Struct):
    """What every message has, whatever a newer server put into it."""

    epoch: str
    seq: int
    prev: int
    delta: _Tag
    at: float = 0.0


_heads = msgspec.json.Decoder(_Head)


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """How an engine that the console started itself is doing; ``message`` is server text."""

    phase: Literal["starting", "listening", "ended"]
    message: str = ""


class EngineSource:
    """Folds what one server tells into ``state``; lives on the loop that owns the state. ``changed`` is
    called after every change; ``engine`` says how the embedded engine is doing, None for a server that
    somebody else started; ``folded`` is given every message that was folded, and its text."""

    def __init__(
        self,
        client: EngineClient,
        state: ConsoleState,
        changed: Callable[[], None],
        engine: Callable[[], EngineStatus] | None = None,
        folded: Callable[[Envelope, bytes, float], None] | None = None,
    ) -> None:
        self._client = client
        self._state = state
        self._changed = changed
        self._engine = engine
        self._folded = folded
        self._interest = Interest()
        self._interest_changed = asyncio.Event()
        self._streams: tuple[str, ...] = ()  # as last asked for
        self._streams_changed = asyncio.Event()
        #: Whether their text is asked for, or only when tokens come.
        self._content = False
        self._backoff = Backoff()
        #: What the last connection was asked for, where the next can go on after it.
        self._watched: Interest | None = None
        self._can_resume = False

    def set_interest(self, interest: Interest) -> None:
        if interest != self._interest:
            self._interest = interest
            self._interest_changed.set()

    def watch_streams(self, requests: tuple[str, ...], *, content: bool = False) -> None:
        other = content != self._content
        kept = self._state.watch_streams(requests, afresh=other)
        if kept != self._streams or other:
            self._streams, self._content = kept, content
            self._streams_changed.set()
        self._changed()

    async def run(self) -> None:
        """Watch and tap until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_forever())
            group.create_task(self._tap_forever())

    # --- the watch stream

    async def _watch_forever(self) -> None:
        greeted = False
        while True:
            try:
                if not greeted:
                    await self._greet()
                    greeted = True
                if await self._watch_once():
                    continue
            except (UnreachableError, RefusedError, NotUnderstoodError) as failure:
                greeted = False
                self._lost(failure)
            await asyncio.sleep(self._pause_s())

    async def _greet(self) -> None:
        hello = await self._client.hello()
        self._state.hello(hello, actor())
        self._can_resume = "resume" in hello.capabilities
        if "history" in hello.capabilities and self._state.wants_history:
            recorder = hello.fleet.recorder
            await self._look_back(recorder.until_at if recorder is not None else None)
        newer = hello.protocol_version > PROTOCOL_VERSION
        self._state.link.note(
            f"the server speaks protocol {hello.protocol_version}, this console {PROTOCOL_VERSION}:"
            " what it does not understand is not shown"
            if newer
            else ""
        )

    async def _look_back(self, server_at: float | None) -> None:
        """What was before this console came; one that cannot have it starts with empty histories.
        ``server_at`` is the server's clock, where it told it: ours may show something else."""
        try:
            history = await self._client.history(SAMPLES * INTERVAL_S, HISTORY_STEP_S)
        except (RefusedError, NotUnderstoodError) as failure:
            self._state.link.note(f"no history: {describe(failure)}")
        else:
            now_at = time.time() if server_at is None else server_at
            # More than a step of the future is a clock that differs.
            self._state.look_back(history, now_at=max(now_at, history.until_at - history.step_s))

    async def _watch_once(self) -> bool:
        """Follow one connection. True: open the next at once, with another filter; False: after a pause,
        since messages were missing. Raises a Failure when the connection is lost."""
        self._interest_changed.clear()
        interest = self._interest
        goes_on = self._can_resume and interest == self._watched
        since = self._state.resume_id if goes_on else None
        self._watched = interest
        if since is None:
            self._state.opened()
        try:
            async with self._client.watch(interest.replicas, interest.detail, interest.hz, since) as stream:
                return await _until(self._interest_changed, self._follow(stream))
        except RefusedError as refused:
            if since is not None and refused.problem.status in (400, 410):
                self._state.opened()
                return True  # at once, with a fresh snapshot
            if refused.problem.code != "unknown_replica" or not interest.replicas:
                raise
            # What was looked at is gone; the rest of the fleet is still there.
            self._interest = Interest(hz=interest.hz)
            return True

    async def _follow(self, stream: MessageStream) -> None:
        """Returns at a gap in the stream."""
        counted = 0
        async for text in stream.messages():
            now_s = time.monotonic()
            received = stream.bytes_received
            self._state.link.received(received - counted, now_s)
            counted = received
            if not self._fold(text, now_s):
                self._watched = None  # the next connection begins anew
                return
            self._changed()
        raise UnreachableError(self._client.target.url, "the server closed the stream")

    def _fold(self, text: str, now_s: float) -> bool:
        try:
            envelope = _envelopes.decode(text)
        except msgspec.ValidationError:
            return self._skip(text, now_s)
        except (msgspec.DecodeError, RecursionError) as error:
            raise NotUnderstoodError(f"the watch stream is not the protocol: {error}") from error
        if not self._state.fold(envelope, now_s):
            return False
        if self._folded is not None:
            self._folded(envelope, text.encode(), now_s)
        if self._state.link.state == "live":
            self._backoff.reset()
        return True

    def _skip(self, text: str, now_s: float) -> bool:
        """A message from a newer server. One whose head cannot be read either is no message of this
        protocol."""
        try:
            head = _heads.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise NotUnderstoodError(f"the watch stream is not the protocol: {error}") from error
        self._state.link.note(
            f"the server sent {ascii(head.delta.type)[:40]}, which this console does not understand"
        )
        if not self._state.follow(head.epoch, head.seq, head.prev, now_s):
            return False
        if self._folded is not None:  # its place in the chain is all that can be kept of it
            heard = Envelope(
                epoch=head.epoch, seq=head.seq, prev=head.prev, at=head.at, delta=Heartbeat(at=head.at)
            )
            self._folded(heard, msgspec.json.encode(heard), now_s)
        return True

    def _lost(self, failure: Failure) -> None:
        engine = self._engine() if self._engine else None
        if engine is not None and engine.phase == "starting":
            self._state.link.starting(engine.message)
        elif engine is not None and engine.phase == "ended":
            self._state.link.lost(engine.message)
        else:
            self._state.link.connecting(describe(failure))
        self._changed()

    def _pause_s(self) -> float:
        """An engine on its way up is asked often: it answers within a second of listening."""
        if self._engine and self._engine().phase == "starting":
            return SHORTEST_S
        return self._backoff.next_s()

    # --- the token tap

    async def _tap_forever(self) -> None:
        backoff = Backoff()
        while True:
            self._streams_changed.clear()
            wanted = self._state.tap_opened()
            if not wanted:
                await self._streams_changed.wait()
                continue
            try:
                changed = await _until(self._streams_changed, self._tap_once(wanted, backoff))
            except (UnreachableError, RefusedError, NotUnderstoodError) as failure:
                self._state.stream_trouble(describe(failure))
                self._changed()
                changed = False
            if not changed:
                await _wait(self._streams_changed, backoff.next_s())

    async def _tap_once(self, wanted: tuple[str, ...], backoff: Backoff) -> None:
        """Read until the server ends the tap, which it does when all its requests have ended."""
        try:
            async with self._client.tokens(wanted, content=self._content) as stream:
                self._state.stream_trouble("")
                async for text in stream.messages():
                    try:
                        delta = _token_deltas.decode(text)
                    except (msgspec.DecodeError, RecursionError) as error:
                        raise NotUnderstoodError(f"the token tap is not the protocol: {error}") from error
                    self._state.tokens(delta, self._state.clock.at(time.time(), time.monotonic()))
                    backoff.reset()
                    self._changed()
        except RefusedError as refused:
            if refused.problem.code != "unknown_request":
                raise
            await self._drop_unknown(wanted)

    async def _drop_unknown(self, requests: tuple[str, ...]) -> None:
        """One request that the server has forgotten must not keep the others' text away."""
        for request in requests:
            try:
                await self._client.request(request)
            except RefusedError as refused:
                if refused.problem.status == 404:
                    self._state.stream_gone(request)
        self._changed()


def describe(failure: Failure) -> str:
    """One line for the operator; the server's words in it are not yet safe to print."""
    if isinstance(failure, UnreachableError):
        return failure.why
    if isinstance(failure, RefusedError):
        problem = failure.problem
        return f"{problem.title.rstrip('.')}: {problem.detail}" if problem.detail else problem.title
    return str(failure)


async def _until(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do ``work`` until it ends (False) or the event is set (True); what it raises is raised here."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return event.is_set()
        return True
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
