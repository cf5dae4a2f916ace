"""The console's own state: watch messages folded in, pictures handed out.

One ``ConsoleState`` belongs to the collector's thread. A fresh snapshot is folded aside and takes the place
of what is shown only when it has arrived whole, so a reconnect or another filter leaves no gap on the screen.
"""

from collections.abc import Iterable, Mapping

from infer_engine.protocol import (
    Envelope,
    Event,
    EventDelta,
    Fleet,
    FleetDelta,
    HeldDelta,
    Hello,
    History,
    OperationDelta,
    ReplicaFrame,
    ReplicaGone,
    RequestRow,
    Reset,
    Role,
    SnapshotBegin,
    SnapshotEnd,
    TokenDelta,
    Totals,
)

from infer_console.state.feed import EventFeed, OperationFeed
from infer_console.state.link import LinkFold
from infer_console.state.looked_up import LookedUp
from infer_console.state.picture import Environment, Picture, ReplicaPicture
from infer_console.state.replica import ReplicaFold
from infer_console.state.series import INTERVAL_S, SAMPLES, SeriesSet, sample_replica, sample_totals
from infer_console.state.server_clock import ServerClock
from infer_console.state.streams import MAX_STREAMS, StreamTail


class World:
    """What a snapshot replaces as a whole."""

    def __init__(self, fleet: Fleet | None = None) -> None:
        self.fleet = fleet
        self.totals: Totals | None = None
        self.replicas: dict[str, ReplicaFold] = {}
        self.held: tuple[RequestRow, ...] = ()


class ConsoleState:
    """Times named ``now_s`` are the console's monotonic clock, ``now_at`` is Unix seconds."""

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        embedded: bool = False,
        environment: Environment | None = None,
    ) -> None:
        self.link = LinkFold(url)
        self.clock = ServerClock()
        self._read_only = read_only
        self._embedded = embedded
        self._environment = environment or Environment()
        self._role: Role | None = None
        self._subject: str | None = None
        self._claim: str | None = None
        self._server_version: str | None = None
        self._capabilities: frozenset[str] = frozenset()
        self._epoch: str | None = None
        self._seq = 0
        self._world = World()
        self._incoming: World | None = None
        self._events = EventFeed()
        self._operations = OperationFeed()
        self._streams: dict[str, StreamTail] = {}
        self._streams_message = ""
        self._history = SeriesSet()
        self._replica_history: dict[str, SeriesSet] = {}
        self._sampled_s: float | None = None
        self._looked_back = False
        self.looked_up = LookedUp()

    # --- what comes in

    def hello(self, hello: Hello, claim: str | None = None) -> None:
        """``claim`` is the name under which this console attaches."""
        self._server_version = hello.server_version
        self._role, self._subject, self._claim = hello.role, hello.subject, claim
        self._capabilities = frozenset(hello.capabilities)
        if self._world.fleet is None:
            self._world.fleet = hello.fleet

    @property
    def resume_id(self) -> str | None:
        """The id of the last message that was folded, after which the stream can go on; None when there is
        none."""
        return f"{self._epoch}:{self._seq}" if self._epoch is not None and self._seq else None

    @property
    def wants_history(self) -> bool:
        """Nothing was sampled yet that was known."""
        return self._history.is_unknown

    def look_back(
        self, history: History, taken: Mapping[str, int] | None = None, *, now_at: float | None = None
    ) -> None:
        """Take the server's series, or a recording's, for the time before this console came. ``taken`` is how
        many samples each of them had, by replica, the fleet's under the empty name. ``now_at`` is the clock
        of ``history.until_at``: the last step of a server's series may not be over yet."""
        taken = taken or {}
        ahead = 0 if now_at is None else max(0, round((history.until_at - now_at) / INTERVAL_S))
        self._history.look_back(history.fleet, history.step_s, taken.get(""), ahead)
        for replica, series in history.replicas.items():
            self._replica_history.setdefault(replica, SeriesSet()).look_back(
                series, history.step_s, taken.get(replica), ahead
            )
        self._looked_back = True

    def opened(self) -> None:
        """A new watch connection: sequence numbers start anew and half a snapshot is worth nothing."""
        self._epoch = None
        self._seq = 0
        self._incoming = None

    def fold(self, envelope: Envelope, now_s: float) -> bool:
        """Fold one message in; False when one before it is missing, and the watch has to be opened anew."""
        if not self.follow(envelope.epoch, envelope.seq, envelope.prev, now_s):
            return False
        self.clock.told(envelope.at, now_s)
        self._operations.of_epoch(envelope.epoch, envelope.at)
        match envelope.delta:
            case SnapshotBegin() as begin:
                self._server_version = begin.server_version
                self._capabilities = frozenset(begin.capabilities)
                self._incoming = World(self._world.fleet)
            case SnapshotEnd():
                if self._incoming is not None:
                    self._world, self._incoming = self._incoming, None
                    self.link.live(now_s)
            case Reset():
                self.link.resynced()
            case EventDelta(event=event):
                self._events.add(envelope.epoch, event)
            case OperationDelta(operation=operation):
                self._operations.add(operation)
            case FleetDelta() | ReplicaFrame() | ReplicaGone() | HeldDelta() as delta:
                self._fold_world(delta)
            case _:
                pass  # heartbeats; steps, which nobody shows yet
        return True

    def follow(self, epoch: str, seq: int, prev: int, now_s: float) -> bool:
        """Check that the message with this head is the next one; for a message nobody understands, all there
        is."""
        if prev != self._seq or (self._epoch is not None and epoch != self._epoch):
            self.link.resynced()
            return False
        self._epoch, self._seq = epoch, seq
        self.link.heard(now_s)
        if prev and self.is_whole:
            self.link.resumed(now_s)
        return True

    def _fold_world(self, delta: FleetDelta | ReplicaFrame | ReplicaGone | HeldDelta) -> None:
        world = self._incoming if self._incoming is not None else self._world
        match delta:
            case FleetDelta(fleet=fleet, totals=totals):
                world.fleet, world.totals = fleet, totals
            case ReplicaFrame(replica=replica):
                if replica not in world.replicas:
                    history = self._replica_history.setdefault(replica, SeriesSet())
                    world.replicas[replica] = ReplicaFold(replica, history)
                world.replicas[replica].apply(delta)
            case ReplicaGone(replica=replica):
                world.replicas.pop(replica, None)
            case HeldDelta(rows=rows):
                world.held = tuple(rows)

    def watch_streams(self, requests: Iterable[str], *, afresh: bool = False) -> tuple[str, ...]:
        """Keep the tails of these requests, at most 16, and of no others; returns those kept. ``afresh``:
        without what was read of them."""
        wanted = tuple(dict.fromkeys(requests))[:MAX_STREAMS]
        if afresh:
            self._streams.clear()
        self._streams = {request: self._streams.get(request) or StreamTail(request) for request in wanted}
        return wanted

    def tap_opened(self) -> tuple[str, ...]:
        """A token tap is about to be opened; returns the requests to ask for: those that have not ended."""
        wanted = tuple(request for request, tail in self._streams.items() if not tail.ended)
        for request in wanted:
            self._streams[request].opened()
        return wanted

    def tokens(self, delta: TokenDelta, heard_at: float | None = None) -> None:
        tail = self._streams.get(delta.request)
        if tail is not None:
            tail.apply(delta, heard_at)

    def stream_gone(self, request: str) -> None:
        """The server does not know a tapped request (any more)."""
        tail = self._streams.get(request)
        if tail is not None:
            tail.gone()

    def stream_trouble(self, message: str) -> None:
        """Why no tokens come; empty when they do."""
        self._streams_message = message

    # --- time passes

    def sample(self, now_s: float) -> bool:
        """Add the samples that are due to the histories; while the link is down what is added is unknown."""
        if self._sampled_s is None:
            self._sampled_s = now_s - INTERVAL_S
        due = int((now_s - self._sampled_s) / INTERVAL_S)
        if due <= 0:
            return False
        self._sampled_s += due * INTERVAL_S
        for _ in range(min(due - 1, SAMPLES)):
            self._sample_once(known=False)
        self._sample_once(known=self.link.picture(now_s).state == "live")
        return True

    def _sample_once(self, *, known: bool) -> None:
        totals = self._world.totals
        self._history.sample(sample_totals(totals) if known and totals else {})
        if self._world.replicas:
            self._looked_back = False
        for gone in self._replica_history.keys() - self._world.replicas.keys():
            if self._looked_back:
                break  # its first frame has yet to come
            if self._incoming is None or gone not in self._incoming.replicas:
                del self._replica_history[gone]
        for fold in self._world.replicas.values():
            values = sample_replica(fold.status) if known and fold.status else {}
            self._replica_history[fold.id].sample(values)
            fold.sampled()

    # --- what goes out

    @property
    def is_whole(self) -> bool:
        """A snapshot has arrived, and none is arriving."""
        return self._incoming is None and self._world.totals is not None

    @property
    def position(self) -> tuple[str, int]:
        """Epoch and number of the last message that was folded."""
        return self._epoch or "", self._seq

    @property
    def series(self) -> dict[str, SeriesSet]:
        """The histories by replica, the fleet's under the empty name."""
        return {"": self._history} | {name: self._replica_history[name] for name in self._world.replicas}

    def notice(self, now_at: float) -> list[Event]:
        """That the link went away or came back since this was last asked: in the feed from now on."""
        return [self._events.noticed(now_at, reason, why) for reason, why in self.link.take_news()]

    def picture(self, now_at: float, now_s: float) -> Picture:
        """All that is known now. Alarms are the diagnosis' to add."""
        self.notice(now_at)
        replicas: dict[str, ReplicaPicture] = {}
        for name, fold in sorted(self._world.replicas.items(), key=_by_name):
            if (shown := fold.picture()) is not None:
                replicas[name] = shown
        return Picture(
            at=now_at,
            link=self.link.picture(now_s),
            read_only=self._read_only or self._role in ("viewer", "content"),
            environment=self._environment,
            role=self._role,
            subject=self._subject,
            claim=self._claim,
            embedded=self._embedded,
            server_version=self._server_version,
            capabilities=self._capabilities,
            fleet=self._world.fleet,
            totals=self._world.totals,
            replicas=replicas,
            held=self._world.held,
            events=self._events.picture(),
            operations=self._operations.picture(),
            streams={request: tail.picture() for request, tail in self._streams.items()},
            history=self._history.series(),
            streams_message=self._streams_message,
            listing=self.looked_up.listing,
            listing_message=self.looked_up.listing_message,
            demand=self.looked_up.demand,
            timeline=self.looked_up.timeline,
            sentence=self.looked_up.sentence,
        )


def _by_name(item: tuple[str, ReplicaFold]) -> tuple[str, int, str]:
    """r2 before r10."""
    name = item[0]
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return stem, int(digits[:18]) if digits else -1, name
