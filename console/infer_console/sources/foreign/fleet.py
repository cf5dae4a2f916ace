"""One or more watched servers as one fleet: servers come and go with their name's addresses, each is looked
at by itself, and what they told is put together."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

import httpx2
import msgspec
from infer_engine.foreign.ours import OUR_GATEWAY
from infer_engine.protocol import Event, Problem, Replica, RequestRow, Status, Tokenized

from infer_console.sources.failures import NotUnderstoodError, RefusedError
from infer_console.sources.foreign.gpus import Exporter, Gpus
from infer_console.sources.foreign.member import Member
from infer_console.sources.foreign.names import Resolver, UnresolvedError
from infer_console.sources.foreign.totals import fleet_of, totals_of, unlike
from infer_console.watched import MOST_SERVERS, Pace, Watched, netloc, row_names

MAX_EVENTS = 256


class _Name:
    """A DNS name, and when its addresses are to be asked for again."""

    def __init__(self, server: Watched, pace: Pace) -> None:
        self.server = server
        self.resolver = Resolver(server.host, server.port, pace.resolve_timeout_s)
        self.addresses: list[str] = []
        self.trouble = self.said = ""
        #: Addresses that there is no room for were told of.
        self.too_many = False
        self.asking: asyncio.Task[None] | None = None
        self.due_s = 0.0

    async def ask(self) -> None:
        try:
            self.addresses = await self.resolver.addresses()
            self.trouble = ""
        except UnresolvedError as error:
            self.trouble = str(error)  # and the addresses of before stay
            self.due_s = self.due_s if self.addresses else 0.0


class WatchedFleet:
    """``to_server`` makes the connections of one server: their pools are apart, so that one that hangs takes
    no place of the others."""

    def __init__(
        self,
        servers: Sequence[Watched],
        token: str | None,
        to_server: Callable[[], httpx2.AsyncBaseTransport],
        pace: Pace,
    ) -> None:
        self._token, self._to_server, self._pace = token, to_server, pace
        engines = [each for each in servers if each.kind != "dcgm"]
        fixed = [each for each in engines if not each.dns]
        self._alone = len(engines) == 1 and not engines[0].dns
        self._sole_name = len(engines) == 1
        names: list[str | None] = [None] if self._alone else [*row_names(fixed)]
        self._names = [_Name(each, pace) for each in engines if each.dns]
        self._members = [self._member(server, name) for server, name in zip(fixed, names, strict=True)]
        exporters = [Exporter(each, to_server(), pace) for each in servers if each.kind == "dcgm"]
        self._gpus = Gpus(exporters, lambda words: self._event(None, "gpus", words))
        self._name = engines[0].netloc if self._sole_name else f"{len(engines)} servers"
        self._was_live: dict[str, bool] = {}
        self._numbered = 0
        self._turn = asyncio.Lock()
        self._status: Status | None = None
        self._looked_s = 0.0
        self.looks = 0
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)

    async def aclose(self) -> None:
        asking = [name.asking for name in self._names if name.asking is not None]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await self._gpus.aclose()
        for member in self._members:
            await member.aclose()

    @property
    def unlike(self) -> bool:
        return unlike(self._members)

    @property
    def urls(self) -> list[str]:
        """Of the servers that are known by now, as ``serve --upstream`` takes them."""
        return list(dict.fromkeys(member.url for member in self._members))

    @property
    def is_our_gateway(self) -> bool:
        """Whether there is nothing else among those that answered."""
        products = {member.reading.product for member in self._members if member.reading is not None}
        return products == {OUR_GATEWAY}

    @property
    def rows(self) -> dict[str, list[RequestRow]]:
        """The requests of those servers that tell them, by row."""
        return {name: rows for member in self._members for name, rows in member.rows().items()}

    async def look(self) -> Status:
        """What is told now, or was less than a second ago. Raises what the only server raises, or, where none
        of several answers, what the first does."""
        async with self._turn:
            now_s = time.monotonic()
            if self._status is None or now_s - self._looked_s >= self._pace.look_s * 0.8:
                await self._follow_names()
                await self._ask()
                self._looked_s = time.monotonic()
                self._notice()
                self._status = None
                self._raise_if_none()
                self._status = self._put_together()
                self.looks += 1
            return self._status

    async def tokenize(self, text: str) -> Tokenized:
        """By the first that answers: those of one fleet serve one model."""
        await self.look()
        live = next((member for member in self._members if member.live), None)
        if live is None:
            raise RefusedError(Problem(status=503, code="not_tokenized", title="no server answers"))
        return await live.tokenize(text)

    # --- who is watched

    def _member(self, server: Watched, name: str | None, address: str | None = None) -> Member:
        return Member(server, name, self._token, self._to_server(), self._pace, address)

    async def _follow_names(self) -> None:
        now_s = time.monotonic()
        for name in self._names:
            if (name.asking is None or name.asking.done()) and now_s >= name.due_s:
                name.due_s = now_s + self._pace.resolve_s
                name.asking = asyncio.create_task(name.ask())
        first = [name.asking for name in self._names if not name.addresses and name.asking is not None]
        if first:  # where nothing can be shown before they are there; the resolver's time is limited
            await asyncio.wait(first, timeout=self._pace.grace_s if self._members else None)
        for name in self._names:
            if name.trouble and name.trouble != name.said and name.addresses:
                self._event(None, "unresolved", f"{name.trouble}; the addresses of before stay")
            name.said = name.trouble
            await self._take_addresses(name)

    async def _take_addresses(self, name: _Name) -> None:
        wanted = name.addresses
        mine = [member for member in self._members if member.server is name.server]
        for member in mine:
            if member.address not in wanted:
                self._members.remove(member)
                self._was_live.pop(member.name or "", None)
                self._event(member.name, "gone", f"{name.server.host} has this address no more")
                await member.aclose()
        known = {member.address for member in mine}
        for address in wanted:
            if address in known:
                continue
            if len(self._members) >= MOST_SERVERS:
                if not name.too_many:
                    words = (
                        f"{name.server.host} has {len(wanted)} addresses: {MOST_SERVERS} servers are watched"
                    )
                    self._event(None, "unwatched", words)
                name.too_many = True
                return
            row = address if self._sole_name else netloc(address, name.server.port)
            self._members.append(self._member(name.server, row, address))
            if self.looks:
                self._event(row, "starting", f"{name.server.host} has this address now")
        name.too_many = False

    # --- looking

    async def _ask(self) -> None:
        looks = [member.begin() for member in self._members]
        tasks = [task for task in (*looks, *self._gpus.begin()) if task is not None]
        if self._alone and looks[0] is not None:
            await asyncio.wait([looks[0]])
        if tasks:
            await asyncio.wait(tasks, timeout=self._pace.grace_s)

    def _notice(self) -> None:
        """What happened to the servers since the last look."""
        for member in self._members:
            for event in member.new_events():
                self._number(event)
            name = member.name
            if name is None or (member.status is None and member.trouble is None):
                continue
            live, was = member.live, self._was_live.get(name)
            if live != was and (was is not None or not live):
                words = "it answers again" if live else f"unreachable: {member.why_not}"
                self._event(name, "ready" if live else "failed", words)
            self._was_live[name] = live

    def _raise_if_none(self) -> None:
        if any(member.trouble is None for member in self._members):
            return
        if not self._members:
            words = "; ".join(name.trouble for name in self._names if name.trouble) or "no server is known"
            raise httpx2.ConnectError(words)
        first = self._members[0]
        trouble = first.trouble
        assert trouble is not None
        if self._alone or len(self._members) == 1:
            raise trouble
        words = f"none of {len(self._members)} servers answers; {first.name}: {first.why_not}"
        if isinstance(trouble, RefusedError):
            raise RefusedError(msgspec.structs.replace(trouble.problem, title=words))
        raise (
            NotUnderstoodError(words)
            if isinstance(trouble, NotUnderstoodError)
            else httpx2.ConnectError(words)
        )

    def _put_together(self) -> Status:
        rows = self._gpus.put_on({member: member.replicas() for member in self._members})
        replicas: list[Replica] = [row for each in rows.values() for row in each]
        if self._alone and (status := self._members[0].status) is not None:
            return msgspec.structs.replace(status, replicas=replicas)
        live = [member for member in self._members if member.live]
        return Status(
            fleet=fleet_of(self._name, [member for member in self._members if member.status is not None]),
            replicas=replicas,
            totals=totals_of(live, replicas),
        )

    # --- what happened

    def _event(self, replica: str | None, reason: str, message: str) -> None:
        self._number(
            Event(seq=0, at=time.time(), kind="replica", replica=replica, reason=reason, message=message)
        )

    def _number(self, event: Event) -> None:
        self._numbered += 1
        self.events.append(msgspec.structs.replace(event, seq=self._numbered))
