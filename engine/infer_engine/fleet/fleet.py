"""The fleet: everything that gateway and control may ask of the replicas, in one place; the work is done
elsewhere.

Lives in one asyncio loop and is not thread-safe. Methods that are not ``async`` take effect before they
return.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from infer_engine.fleet.beginning import Start, restore, starting
from infer_engine.fleet.board import Board
from infer_engine.fleet.cancelling import cancel
from infer_engine.fleet.capacity import Capacity
from infer_engine.fleet.chores import TICK_S, Chores
from infer_engine.fleet.draining import Draining
from infer_engine.fleet.feed import Feed
from infer_engine.fleet.fencing import Fencing
from infer_engine.fleet.generation import Generation, GenerationSpec
from infer_engine.fleet.gpu_health import GpuWatch
from infer_engine.fleet.inbox import Inbox, StateChanges
from infer_engine.fleet.intake import Intake, id_source
from infer_engine.fleet.joining import Door, Joining
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.limits_desk import LimitsDesk
from infer_engine.fleet.measures import Measures
from infer_engine.fleet.members import Members, tell_failure
from infer_engine.fleet.moments import Moments
from infer_engine.fleet.observers import Observer, Observers
from infer_engine.fleet.outlook_desk import OutlookDesk
from infer_engine.fleet.placement import placement
from infer_engine.fleet.preempting import Preempting
from infer_engine.fleet.replica_process import Launch
from infer_engine.fleet.resizing import Resizing
from infer_engine.fleet.reverts import Reverts
from infer_engine.fleet.router import Policy, choose
from infer_engine.fleet.run_dir import RunDir
from infer_engine.fleet.scaling import Scaling
from infer_engine.fleet.scaling_desk import ScalingDesk
from infer_engine.fleet.shedding import Shedding
from infer_engine.fleet.spec_file import SpecDir
from infer_engine.fleet.specs import Specs
from infer_engine.fleet.stalls import Stalls
from infer_engine.fleet.stopping import Stopping
from infer_engine.fleet.tenant_changes import TenantChanges
from infer_engine.fleet.tenant_use import TenantUses
from infer_engine.fleet.tenants import TenantDesk
from infer_engine.fleet.timelines import Timelines
from infer_engine.fleet.tracked import Intent, Tracked
from infer_engine.fleet.views import Views
from infer_engine.fleet.welcome import Welcome
from infer_engine.protocol import (
    FinishReason,
    Replica,
    ReplicaFrame,
    RequestRow,
    RequestState,
    Simulation,
    Status,
)
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.launch_local import launch
from infer_engine.replica.links import Links
from infer_engine.replica.messages import FromReplica
from infer_engine.replica.server_link import MakeLink, ServerLink
from infer_engine.settings import ServerSettings


class Fleet:
    """``run_dir`` holds the socket and the replicas' logs; unset, a private one is made and removed again.

    What operators do is asked of the desks: ``draining``, ``preempting``, ``limits``, ``tenants``,
    ``resizing``, ``fencing``, ``shedding``."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        run_dir: Path | None = None,
        launch: Launch = launch,
        link: MakeLink = ServerLink,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        pace: float = 1.0,
        simulation: Callable[[], Simulation] | None = None,
        policy: Policy = choose,
        spec_dir: SpecDir | None = None,
        real_clock: Callable[[], float] | None = None,
        door: Door | None = None,
    ) -> None:
        """``spec_dir``, open, is where specs outlive this server; SpecDirError when it cannot be read.
        ``real_clock`` is in real seconds where ``clock`` may be pushed. ``door``: where replicas of
        other machines come in."""
        self.settings = settings
        #: Seconds of the fleet's clock in a real one. All durations are of that clock, all moments are real.
        self.pace = pace
        self.epoch = secrets.token_hex(8)
        self.feed = Feed(wall)
        self._moments = Moments(pace)
        known, lost = spec_dir.read() if spec_dir is not None else (None, None)
        begin = starting(settings.replicas, known, fixed=bool(settings.upstreams))
        self.measures = Measures([], clock())
        self._clock = clock
        real_clock = real_clock or time.monotonic
        self._run_dir = RunDir(run_dir, self.epoch)
        self.run_dir = self._run_dir.path
        tcp = None if door is None else door.link(self._receive, self._after_batch, self._guest)
        here = link(self.run_dir, self._receive, self._after_batch)
        self._link = here if tcp is None else Links(here, tcp)

        self._handles: dict[str, ReplicaHandle] = {}
        self._ledger = Ledger(self.feed, clock)
        self.placement = placement(self._handles, self._ledger, settings, policy, pace)
        placer, moving = self.placement.placer, self.placement.moving
        desk = TenantDesk()
        uses = TenantUses(desk.rate)
        self.intake = Intake(self._ledger, placer, desk, uses, id_source(settings.seed), self._take_back)
        self._observers = Observers(self._handles)
        self._welcome = Welcome(
            self._handles, self.placement, self._observers, desk, begin.wanted, self._is_stopping
        )
        self.members = self._make_members(launch)
        self.draining = Draining(self._handles, self._ledger, placer, moving, self.measures)
        self.preempting = Preempting(self._handles, self._ledger, moving)
        self.limits = LimitsDesk(self._handles)
        self.reverts = Reverts(self._handles, desk)
        self.specs = Specs(
            self._handles,
            desk,
            begin.wanted,
            settings.replicas,
            lambda: self.reverts.pending,
            spec_dir,
            trouble=lost,
        )
        self.timelines = Timelines(self._ledger)
        scaling = ScalingDesk(
            self._handles,
            self._ledger,
            self.measures,
            Scaling(1, settings.most_replicas),
            settings.slo_ttft_s,
            settings.slo_itl_s,
        )
        self._views = Views(
            settings,
            self._handles,
            self._ledger,
            placer,
            self.measures,
            self.timelines,
            simulation,
            scaling.status,
            self.specs,
            uses,
        )
        #: For those who watch.
        self.board = Board(self._views, clock, pace)
        states = StateChanges(ready=self._welcome.loaded, observed=self.draining.observed)
        self._inbox = Inbox(
            self._handles, self._ledger, placer, moving, self.measures, states, self._link.send
        )
        self.joining: Joining | None = None
        if door is not None and tcp is not None:
            self.joining = Joining(
                door=door,
                link=tcp,
                members=self.members,
                wanted=begin.wanted,
                settings=settings.replica,
                clock=real_clock,
                drain=self.draining.close_for_restart,
            )
        self._begin_as(begin, desk)
        self.resizing = Resizing(self.members, begin.wanted, self._ledger, settings)
        self.fencing = Fencing(self.members, self._ledger, placer, self.resizing)
        self.capacity = Capacity(settings, self._handles, self._ledger, self.measures)
        #: What the next minute brings under other rules.
        self.outlook = OutlookDesk(
            self._handles, self._ledger, desk.recent, desk.rate, self.capacity.step_time
        )
        self.shedding = Shedding(self._handles, self._ledger, begin.wanted, self.outlook, desk.limits)
        self.tenants = TenantChanges(desk, self._handles, self._ledger, self.specs, self.outlook)
        stalls = Stalls(
            self._handles,
            self.members.lifecycles,
            self._ledger,
            TICK_S,
            real_clock,
            self.measures.stalled,
        )
        self._chores = Chores(
            self.placement,
            self._moments,
            desk,
            uses,
            scaling,
            self.members,
            self.specs,
            self._is_stopping,
            rebalance=settings.rebalance,
            joining=self.joining,
            stalls=stalls if settings.replace_stalled else None,
        )
        self._stopping = Stopping(self._ledger, placer, self._handles, pace)
        self._tasks: list[asyncio.Task[None]] = []

    # --- its parts -----------------------------------------------------------------------------------------

    def _make_members(self, launch: Launch) -> Members:
        return Members(
            handles=self._handles,
            settings=self.settings.replica,
            measures=self.measures,
            feed=self.feed,
            clock=self._clock,
            pace=self.pace,
            run_dir=self.run_dir,
            endpoint=lambda: self._link.endpoint,
            send=self._link.send,
            launch=launch,
            foreign=self.settings.upstream_ids,
            on_lost=self.placement.lost,
            on_join=self._welcome.joined,
        )

    def _begin_as(self, begin: Start, desk: TenantDesk) -> None:
        """As it was left: the replicas that there were, wanted as they were."""
        ours = sum(replica not in self.members.foreign for replica in begin.ids)
        for replica in begin.ids:
            self.members.add(replica, max(1, ours))
        known = begin.known
        if self.joining is not None:
            for replica, written in (known.joined if known is not None else {}).items():
                self.joining.add(replica, bytes.fromhex(written.public), written.host)
        restore(begin, self._handles, desk)
        self.reverts.begin(known.reverts if known is not None else {})
        self.specs.begin(known)

    def _receive(self, sender: bytes, message: FromReplica) -> None:
        self._inbox.receive(sender, message)

    def _guest(self, route: bytes, public: bytes, address: str, message: bytes) -> None:
        if self.joining is not None:
            self.joining.hear(route, public, address, message)

    def _after_batch(self) -> None:
        """Answer those who spoke in it: who did not has nothing to be acknowledged, and what it did not read
        the chores try again."""
        self.placement.moving.advance()
        heard, self._inbox.heard = self._inbox.heard, {}
        for handle in heard.values():
            handle.flush()

    def _take_back(self, request_id: str) -> None:
        self.cancel(request_id, code="choice_refused")

    def _is_stopping(self) -> bool:
        return self.intake.closed

    # --- from start to stop --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the replicas; returns at once, before they have loaded. OSError when the run directory cannot
        be made."""
        self._run_dir.open()
        self._link.open()
        self._ledger.on_finish(self._measure_end)
        self._ledger.on_finish(self.outlook.ended)
        for replica in self._handles:
            self.members.start(replica)
        self._tasks.append(asyncio.create_task(self._chores.run(), name="fleet-tick"))
        gpus = GpuWatch(self._handles, self.members.lifecycles, self.feed)
        self._tasks.append(asyncio.create_task(gpus.run(), name="gpu-health"))
        for task in self._tasks:
            task.add_done_callback(tell_failure)

    async def stop(self, drain_s: float = 0.0, *, hurry: asyncio.Event | None = None) -> None:
        """Take no more, let what runs finish for ``drain_s`` at most and until ``hurry`` is set, end the
        rest, end the replicas. Leaves no process and no file; takes at most ``drain_s`` and a few seconds."""
        self.intake.closed = True
        await self._stopping.empty(drain_s, hurry)
        if self.joining is not None:
            await self.joining.close()
        await self.members.stop()
        self._stopping.end_left()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.members.close()
        self._link.close()
        self._run_dir.close()

    def _measure_end(self, request: Tracked) -> None:
        replica = request.generation.replica
        if replica is not None and replica in self.measures.of:
            self.measures.of[replica].ended(request, self._clock())

    # --- time ----------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Monotonic seconds of the fleet's clock."""
        return self._clock()

    def moment(self, at_s: float) -> float:
        """When it was ``at_s`` on the fleet's clock, in Unix seconds."""
        return self._moments.at(at_s, self._clock(), self.feed.wall())

    @property
    def is_simulated(self) -> bool:
        return self.settings.deployment is not None

    # --- requests ------------------------------------------------------------------------------------------

    def submit(self, spec: GenerationSpec) -> Generation:
        """Take a request: it is on a replica, or held until one is ready. Refusal (400 never_fits or
        tenant_prompt_too_long, 429 queue_full, deadline_unreachable or tenant_rate, 503 no_ready_replica or
        draining) when it is not taken."""
        return self.intake.submit(spec)

    def submit_choices(self, specs: Sequence[GenerationSpec]) -> list[Generation]:
        """Take several requests with the same prompt, all of them or (Refusal) none: the first computes it,
        the others share it where they can. Each lives and ends on its own."""
        return self.intake.submit_choices(specs)

    def on_finish(self, listener: Callable[[Generation], None]) -> None:
        """Hear of every request that ended, just after it did; must not block or raise."""
        self._ledger.on_finish(lambda request: listener(request.generation))

    def cancel(
        self, request_id: str, *, reason: FinishReason = "cancelled", code: str | None = None, actor: str = ""
    ) -> bool:
        """Ask for its end, wherever it is; it has ended when its blocks are free. ``reason`` stop: a stop
        string was seen. True when the request is live, also when it was asked before; False when it is not
        (any more)."""
        code = code or ("stop_string" if reason == "stop" else "cancelled_by_operator")
        return cancel(
            self._ledger, self.placement.placer, self._handles, request_id, Intent(reason, code, actor)
        )

    def find(self, request_id: str) -> Generation | None:
        """The live request of that id."""
        request = self._ledger.live.get(request_id)
        return None if request is None else request.generation

    def row(self, request_id: str) -> RequestRow | None:
        """Live, or one of the last thousand that ended."""
        return self._ledger.row(request_id)

    def rows(self, replica: str | None = None, state: RequestState | None = None) -> list[RequestRow]:
        """Live requests by replica, the held ones last; the finished ones only when they are asked for."""
        return self._views.rows(replica, state)

    def oldest_rows(
        self, limit: int, replica: str | None = None, state: RequestState | None = None
    ) -> tuple[list[RequestRow], dict[RequestState, int]]:
        """At most ``limit`` of them, the oldest first, and how many more there are of each state."""
        return self._views.oldest_rows(limit, replica, state)

    def ended_after(self, at: float, limit: int) -> list[RequestRow]:
        """At most ``limit`` of those that finished after ``at`` (Unix seconds), the latest first."""
        return self._ledger.ended_after(at, limit)

    def held_rows(self) -> list[RequestRow]:
        """Requests that wait here because no replica takes them now."""
        return self._views.held_rows()

    def live_users(self) -> bool:
        """Whether any request of a user is live: test traffic is not."""
        return any(not each.generation.spec.synthetic for each in self._ledger.live.values())

    # --- replicas ------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """At least one replica takes requests."""
        return not self.intake.closed and bool(self.capacity.ready_replicas())

    def replica_ids(self) -> list[str]:
        return list(self._handles)

    def replica(self, replica: str) -> Replica:
        """KeyError when there is none of that id."""
        return self._views.replica(replica)

    def status(self) -> Status:
        return self._views.status()

    def frame(self, replica: str) -> ReplicaFrame:
        """Whole, all parts from one observation. ``blocks`` is None unless somebody observes them."""
        return self._views.frame(replica)

    def observe(self, replica: str | None, hz: float, blocks: bool) -> Observer:
        """Have a replica (or all) observed at least so often, with or without blocks, until the observer is
        closed."""
        return self._observers.add(replica, hz, blocks)

    def link_faults(self) -> dict[str, int]:
        """Messages that were no messages (``malformed``) or came from past lives and strangers
        (``ignored``)."""
        return {"malformed": self._link.malformed, "ignored": self._inbox.ignored}
