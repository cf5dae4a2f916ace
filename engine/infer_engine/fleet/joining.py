"""Who joins the fleet by itself: what is asked of it, which place it gets, and what becomes of the place when
it is gone."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from infer_engine.fleet.beginning import Wanted
from infer_engine.fleet.generation import Refusal
from infer_engine.fleet.joined import Guest, Seat
from infer_engine.fleet.members import Members, tell_failure
from infer_engine.protocol import Drain
from infer_engine.replica.curve import KeyPair
from infer_engine.replica.handle import JoinedFrom
from infer_engine.replica.join_messages import (
    ID_PATTERN,
    JOIN_VERSION,
    MOST_CHARACTERS,
    MOST_HOST_CHARACTERS,
    Join,
    Knock,
    Leave,
    LifeEnded,
    Terms,
    TurnedAway,
    decode_from_joiner,
)
from infer_engine.replica.key_list import KeyList
from infer_engine.replica.seldom import Seldom
from infer_engine.replica.server_link import OnMessage
from infer_engine.replica.tcp_link import OnGuest, TcpLink
from infer_engine.replica.wire import MalformedError
from infer_engine.settings import ReplicaSettings

log = logging.getLogger(__name__)

#: How long a place is kept for a replica that was lost, in real seconds.
KEPT_S = 600.0
#: For how long requests wait for one that was lost, where there is no other.
RETURN_S = 30.0
#: Processes that may be at the door at once, places there may be.
MOST_GUESTS = 1024
MOST_SEATS = 1024
#: Longest that a replica which leaves may wait for its requests.
MOST_LEAVE_S = 3600.0
LEAVE_POLL_S = 0.1
#: Who is not let in is told in the log and as an event at most so often within so long.
MOST_TOLD, TOLD_PERIOD_S = 30, 60.0
ACTOR = "the replica itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where replicas of other machines come in. ``listed`` None: only those that a launcher started.
    ``difference`` says in words why what a replica tells of its model is another model than the fleet's."""

    host: str
    port: int
    keys: KeyPair
    listed: KeyList | None = None
    difference: Callable[[dict[str, str]], str | None] = lambda _: None

    def known(self, public: bytes) -> bool:
        return self.listed is not None and public in self.listed

    def link(self, on_message: OnMessage, on_batch_end: Callable[[], None], on_guest: OnGuest) -> TcpLink:
        """How what comes in here is heard."""
        return TcpLink(
            self.host, self.port, self.keys, on_message, on_batch_end, known=self.known, on_guest=on_guest
        )


@dataclass(slots=True, kw_only=True)
class Joining:
    """``drain`` begins a drain that is in nobody's spec."""

    door: Door
    link: TcpLink
    members: Members
    wanted: Wanted
    settings: ReplicaSettings
    clock: Callable[[], float]
    drain: Callable[[str, Drain], None]
    seats: dict[str, Seat] = field(default_factory=dict[str, Seat])
    _guests: dict[bytes, Guest] = field(default_factory=dict[bytes, Guest])
    _tasks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict[str, "asyncio.Task[None]"])
    _stopping: bool = False
    _refusals: Seldom = field(default_factory=lambda: Seldom(MOST_TOLD, TOLD_PERIOD_S))

    # --- what they say -------------------------------------------------------------------------------------

    def hear(self, route: bytes, public: bytes, address: str, data: bytes) -> None:
        """MalformedError for what is no message."""
        message = decode_from_joiner(data)
        guest = self._guests.get(route)
        if isinstance(message, Knock):
            self._knock(route, public, address, message)
        elif guest is None or guest.public != public:
            raise MalformedError(f"a {type(message).__name__} of somebody who has not knocked")
        elif isinstance(message, Join):
            self._join(guest, message)
        elif isinstance(message, LifeEnded):
            self._life_ended(guest, message)
        else:
            self._leave(guest, message)

    def _knock(self, route: bytes, public: bytes, address: str, knock: Knock) -> None:
        if route in self._guests:
            raise MalformedError("somebody knocks a second time")
        host = _printable(knock.host) or _printable(address)
        guest = Guest(route, public, host, knock.pid, knock.replica, self.link)
        if knock.version != JOIN_VERSION:
            self._turn_away(
                guest, f"it speaks version {knock.version}, this server {JOIN_VERSION}", final=True
            )
        elif len(self._guests) >= MOST_GUESTS:
            self._turn_away(guest, "there are too many at the door")
        elif not self._stopping:
            self._guests[route] = guest
            guest.tell(Terms(settings=self.settings))

    def _join(self, guest: Guest, join: Join) -> None:
        if guest.seat is not None or self._stopping:
            return
        different = self.door.difference(join.model)
        if different is not None:
            self._turn_away(
                guest, f"its model is not the one that this fleet serves: {different}", final=True
            )
            return
        seat = self._seat_for(guest)
        if seat is not None:
            log.info("replica %s joins from %s", seat.handle.id, guest.host)
            seat.take(guest)

    def _life_ended(self, guest: Guest, ended: LifeEnded) -> None:
        seat = guest.seat
        if seat is not None and seat.process is not None and seat.process.incarnation == ended.incarnation:
            seat.process.end(ended.code, oom=ended.oom)
        # Nobody keeps a seat without being at the door: else it would outlast its key.
        self._drop(guest, "it says that its worker has ended")

    def _leave(self, guest: Guest, leave: Leave) -> None:
        seat = guest.seat
        if seat is None or seat.handle.id in self._tasks:
            return
        within_s = min(MOST_LEAVE_S, max(0.0, leave.within_s))
        self._start(seat.handle.id, self._see_off(seat, within_s))

    # --- which place ---------------------------------------------------------------------------------------

    def _seat_for(self, guest: Guest) -> Seat | None:
        """None where it was turned away."""
        asked = guest.asked
        if asked is None:
            own = [
                each for each in self.seats.values() if (each.public, each.host) == (guest.public, guest.host)
            ]
            free = [each for each in own if not each.taken and each.handle.fenced is None]
            fenced = [each.handle.id for each in own if each.handle.fenced is not None]
            if free:
                return free[0]
            if fenced:
                why = f"{fenced[0]} of this machine is fenced: release it, or give this replica an --id"
                return self._turn_away(guest, why)
            return self._new_seat(guest, self._next_id())
        if re.fullmatch(ID_PATTERN, asked, re.ASCII) is None:
            return self._turn_away(guest, f"its id does not match {ID_PATTERN}", final=True)
        seat = self.seats.get(asked)
        if seat is None:
            if asked in self.members.handles:
                why = f"{asked} is a replica that the server itself started"
                return self._turn_away(guest, why, final=True, other_id=True)
            return self._new_seat(guest, asked)
        if seat.public != guest.public:
            why = f"{asked} is the replica of another key"
            return self._turn_away(guest, why, final=True, other_id=True)
        if seat.handle.fenced is not None:
            return self._turn_away(
                guest, f"{asked} is fenced ({seat.handle.fenced}): it may join once released"
            )
        seat.look()
        if seat.taken:
            return self._turn_away(guest, f"{asked} is here already")
        return seat

    def _new_seat(self, guest: Guest, replica: str) -> Seat | None:
        if len(self.seats) >= MOST_SEATS:
            return self._turn_away(guest, f"{MOST_SEATS} replicas have joined: there may be no more")
        seat = self.add(replica, guest.public, guest.host)
        self.members.on_join(seat.handle)
        self.members.start(replica)
        return seat

    def add(self, replica: str, public: bytes, host: str) -> Seat:
        """A place that nobody has taken yet; its lifecycle does not run."""
        handle = self.members.add_joined(replica, JoinedFrom(host, public), self.settings)
        seat = Seat(handle, public, self.link, self.members.feed, self.clock, host)
        seat.empty_since_s = self.clock()
        handle.may_return = True
        self.members.lifecycles[replica].joins(seat.arrived, seat.launch)
        self.seats[replica] = seat
        return seat

    def _next_id(self) -> str:
        while (replica := self.wanted.new_id()) in self.members.handles:
            pass
        return replica

    def _turn_away(self, guest: Guest, why: str, *, final: bool = False, other_id: bool = False) -> None:
        why = why[:MOST_CHARACTERS]
        if self._refusals.may(self.clock()):
            more = self._refusals.left_out()
            left_out = f" ({more} more were not told)" if more else ""
            log.warning("a replica from %s was not let in: %s%s", guest.host, why, left_out)
            self.members.feed.event(
                "replica", reason="refused", message=f"from {guest.host}: {why}{left_out}"
            )
        guest.tell(TurnedAway(why=why, final=final, other_id=other_id))
        self._guests.pop(guest.route, None)

    # --- those who are gone --------------------------------------------------------------------------------

    def tick(self) -> None:
        """Twice a second or so: who is gone, whose key is off the list, which place to give up."""
        for guest in list(self._guests.values()):
            if self.door.listed is not None and guest.public not in self.door.listed:
                self._drop(guest, "its key is not among those who may join any more")
            elif self.link.send_to(guest.route, b"") == "unreachable":
                self._drop(guest, "the connection to it is gone")
        now_s = self.clock()
        for replica, seat in list(self.seats.items()):
            seat.look()
            empty_s = seat.empty_since_s
            if seat.taken or seat.handle.fenced is not None or empty_s is None or replica in self._tasks:
                continue
            seat.handle.may_return = now_s - empty_s <= RETURN_S
            if now_s - empty_s > KEPT_S:
                self._start(replica, self._remove(replica, "lost"))

    def _drop(self, guest: Guest, why: str) -> None:
        self._guests.pop(guest.route, None)
        if guest.seat is not None:
            guest.seat.lose(why)

    async def _see_off(self, seat: Seat, within_s: float) -> None:
        replica, handle = seat.handle.id, seat.handle
        with contextlib.suppress(Refusal):  # it is not ready: it has nothing to hand over
            self.drain(replica, Drain(deadline_s=within_s, force=True, actor=ACTOR))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while handle.state == "draining" and seat.process is not None:  # noqa: ASYNC110 - the state has no event
                    await asyncio.sleep(LEAVE_POLL_S)
        await self._remove(replica, "left")

    async def _remove(self, replica: str, how: str) -> None:
        seat = self.seats.pop(replica)
        log.info("replica %s is removed: it %s", replica, how)
        await self.members.remove(replica, actor=f"{ACTOR} ({how})")
        seat.lose(how)

    def _start(self, replica: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"joining-{replica}")
        self._tasks[replica] = task
        task.add_done_callback(tell_failure)
        task.add_done_callback(lambda _: self._tasks.pop(replica, None))

    async def close(self) -> None:
        """Before the members are stopped."""
        self._stopping = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _printable(text: str) -> str:
    return "".join(each for each in text if each.isascii() and each.isprintable())[:MOST_HOST_CHARACTERS]
