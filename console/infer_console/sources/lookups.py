"""What is asked for again and again while somebody looks at it: the watch stream of a large fleet could not
carry it for all."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from infer_engine.protocol import Requests

from infer_console.sources.client import EngineClient
from infer_console.sources.engine import describe
from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError
from infer_console.state.looked_up import MAX_ROWS, MAX_WAITING, LookedUp

LISTING_PERIOD_S = 1.0
#: Who waits longest, and what tenants may use, which changes with what an operator does alone.
WAITING_PERIOD_S, LIMITS_PERIOD_S = 1.0, 5.0
TIMELINE_PERIOD_S = 0.5
#: A sentence is asked for when nothing was typed for so long, and again where nobody answered.
TYPING_S, AGAIN_S = 0.15, 1.0


class Lookups:
    """Lives on the loop that owns ``found``; ``changed`` is called after every change; ``wall``: Unix
    seconds of the clock in which it is said when something was found."""

    def __init__(
        self,
        client: EngineClient,
        found: LookedUp,
        changed: Callable[[], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._found = found
        self._changed = changed
        self._wall = wall
        self._listing_wanted = asyncio.Event()
        self._demand_wanted = asyncio.Event()
        self._request: str | None = None
        self._request_changed = asyncio.Event()
        self._sentence: str | None = None
        self._sentence_changed = asyncio.Event()

    def want_listing(self, wanted: bool) -> None:
        self._want(self._listing_wanted, wanted, self._found.listing_left)

    def want_demand(self, wanted: bool) -> None:
        self._want(self._demand_wanted, wanted, self._found.demand_left)

    def _want(self, event: asyncio.Event, wanted: bool, left: Callable[[], None]) -> None:
        if wanted:
            event.set()
        else:
            event.clear()
            left()
            self._changed()

    def want_timeline(self, request: str | None) -> None:
        if request != self._request:
            self._request = request
            self._found.timeline_wanted(request)
            self._request_changed.set()
            self._changed()

    def want_sentence(self, text: str | None) -> None:
        if text != self._sentence:
            self._sentence = text
            self._found.sentence_wanted(text)
            self._sentence_changed.set()
            self._changed()

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._list_forever())
            group.create_task(self._name_waiting_forever())
            group.create_task(self._list_limits_forever())
            group.create_task(self._follow_forever())
            group.create_task(self._cut_forever())

    async def _list_forever(self) -> None:
        while True:
            await self._listing_wanted.wait()
            try:
                listed = await self._client.requests(limit=MAX_ROWS, ended_after=self._found.last_ended_at)
            except (UnreachableError, RefusedError, NotUnderstoodError) as failure:
                self._found.listing_failed(describe(failure))
            else:
                if self._listing_wanted.is_set():
                    self._found.listed(listed, self._wall())
            self._changed()
            await asyncio.sleep(LISTING_PERIOD_S)

    async def _name_waiting_forever(self) -> None:
        while True:
            await self._demand_wanted.wait()
            try:
                waiting = await self._client.requests(state="waiting", limit=MAX_WAITING)
            except (UnreachableError, RefusedError, NotUnderstoodError):
                self._found.waiting_listed(Requests(requests=[]))  # why, the link says
            else:
                if self._demand_wanted.is_set():
                    self._found.waiting_listed(waiting)
            self._changed()
            await asyncio.sleep(WAITING_PERIOD_S)

    async def _list_limits_forever(self) -> None:
        while True:
            await self._demand_wanted.wait()
            with contextlib.suppress(UnreachableError, RefusedError, NotUnderstoodError):
                tenants = await self._client.tenants()
                if self._demand_wanted.is_set():
                    self._found.limits_listed(tenants)
                    self._changed()
            await asyncio.sleep(LIMITS_PERIOD_S)

    async def _follow_forever(self) -> None:
        while True:
            self._request_changed.clear()
            request = self._request
            if request is None or await self._follow_once(request):
                await self._request_changed.wait()
                continue
            try:
                async with asyncio.timeout(TIMELINE_PERIOD_S):
                    await self._request_changed.wait()
            except TimeoutError:
                pass  # it is asked again

    async def _follow_once(self, request: str) -> bool:
        """Whether its timeline is at its end, or there is none."""
        is_over = False
        try:
            timeline = await self._client.timeline(request)
        except (UnreachableError, RefusedError, NotUnderstoodError) as failure:
            self._found.timeline_failed(request, describe(failure))
            is_over = isinstance(failure, RefusedError) and failure.problem.status == 404
        else:
            if request == self._request:
                self._found.timeline_came(request, timeline, self._wall())
            is_over = any(entry.kind == "finished" for entry in timeline.entries)
        self._changed()
        return is_over

    async def _cut_forever(self) -> None:
        again_s: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):  # nothing else was typed: it is asked again
                async with asyncio.timeout(again_s):
                    await self._sentence_changed.wait()
            while self._sentence_changed.is_set():
                self._sentence_changed.clear()
                await asyncio.sleep(TYPING_S)
            again_s = AGAIN_S if self._sentence is not None and not await self._cut(self._sentence) else None

    async def _cut(self, text: str) -> bool:
        """Whether that was answered, if only with why not."""
        answered = True
        try:
            self._found.sentence_came(text, await self._client.tokenize(text))
        except (UnreachableError, RefusedError, NotUnderstoodError) as failure:
            self._found.sentence_came(text, describe(failure))
            answered = not isinstance(failure, UnreachableError)
        self._changed()
        return answered
