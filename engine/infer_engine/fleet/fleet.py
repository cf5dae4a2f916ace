"""The fleet: everything that gateway and control may ask of the replicas, in one place; the work is done
elsewhere.

Lives in one asyncio loop and is not thread-safe. Methods that are not ``async`` take effect before they
return.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random, SystemRandom

from infer_engine.fleet import headroom, live_limits, tenant_limits
from infer_engine.fleet.cancelling import cancel
from infer_engine.fleet.draining import Draining
from infer_engine.fleet.endings import end_as_intended
from infer_engine.fleet.feed import Feed
from infer_engine.fleet.fencing import Fencing
from infer_engine.fleet.generation import Generation, GenerationSpec, Refusal
from infer_engine.fleet.gpu_health import GpuWatch
from infer_engine.fleet.health import has_work
from infer_engine.fleet.inbox import Inbox, StateChanges
from infer_engine.fleet.joining import Door, Joining
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.lifecycle import Launch, set_state
from infer_engine.fleet.live_limits import Moves
from infer_engine.fleet.loads import Loads
from infer_engine.fleet.losses import settle_losses
from infer_engine.fleet.measures import Measures, itl_figures
from infer_engine.fleet.members import Members, tell_failure
from infer_engine.fleet.moments import Moments
from infer_engine.fleet.moving import Moving
from infer_engine.fleet.observers import Observer, Observers
from infer_engine.fleet.outlook import StepTime
from infer_engine.fleet.outlook_desk import OutlookDesk
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.preempting import Preempting
from infer_engine.fleet.prefix_index import HeldPrefixes
from infer_engine.fleet.rebalancing import Rebalancing
from infer_engine.fleet.refusals import stopping
from infer_engine.fleet.resizing import Resizing
from infer_engine.fleet.reverts import Reverts
from infer_engine.fleet.router import Policy, choose
from infer_engine.fleet.routing import Routing
from infer_engine.fleet.run_dir import RunDir
from infer_engine.fleet.scaling import Scaling
from infer_engine.fleet.scaling_desk import ScalingDesk
from infer_engine.fleet.shedding import Shedding
from infer_engine.fleet.spec_file import SpecDir
from infer_engine.fleet.specs import Specs, common_limits, prime_tenants, restore, starting
from infer_engine.fleet.stalls import Stalls
from infer_engine.fleet.step_time import step_time
from infer_engine.fleet.tenant_use import TenantUses
from infer_engine.fleet.tenants import TenantDesk
from infer_engine.fleet.timelines import Timelines
from infer_engine.fleet.tracked import Intent, Tracked
from infer_engine.fleet.views import Views
from infer_engine.protocol import (
    ChangeLimits,
    ChangeTenant,
    Drain,
    DrainMode,
    Effect,
    FinishReason,
    LiveLimits,
    Preempt,
    Replica,
    ReplicaFrame,
    RequestRow,
    RequestState,
    SetHeadroom,
    Simulation,
    Status,
    TenantLimits,
    Tenants,
    Tier,
)
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.launch_local import launch
from infer_engine.replica.links import Links
from infer_engine.replica.messages import FromReplica, SetLimits, SetShed
from infer_engine.replica.server_link import MakeLink, ServerLink
from infer_engine.replica.tcp_link import TcpLink
from infer_engine.runner.runner import RunnerInfo
from infer_engine.settings import ServerSettings

log = logging.getLogger(__name__)

#: How often replicas that did not read are tried again, and held requests looked at.
TICK_S = 0.5
#: How long cancelled requests get to end when the server stops.
CANCEL_GRACE_S = 1.0
#: How often a stop that waits for requests looks whether it should hurry.
HURRY_POLL_S = 0.1
ID_BITS = 24
#: Up to which a tier is admitted: batch never further than interactive.
MARKS: dict[Tier, tuple[str, ...]] = {
    "interactive": ("admit_limit",),
    "batch": ("admit_limit", "batch_limit"),
}
#: Limits that are of the tenants.
TENANT_LIMITS = frozenset({"tenant_default", "tenants"})


class Fleet:
    """``run_dir`` holds the socket and the replicas' logs; unset, a private one is made and removed again."""

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
        self._run_dir = RunDir(run_dir, self.epoch)
        self.run_dir = self._run_dir.path
        self._link = link(self.run_dir, self._receive, self._after_batch)
        tcp = None if door is None else self._tcp_link(door)
        if tcp is not None:
            self._link = Links(self._link, tcp)
        self._handles: dict[str, ReplicaHandle] = {}
        self._ledger = Ledger(self.feed, clock)
        loads = Loads(self._ledger, settings.replica.max_waiting)
        prefixes = HeldPrefixes() if settings.replica.prefix_cache else None
        self._routing = Routing(self._ledger, loads, prefixes, policy)
        self._placer = Placer(
            self._ledger,
            self._handles,
            loads,
            self._routing,
            most_held=settings.replica.max_waiting,
            pace=pace,
        )
        self._moving = Moving(self._handles, self._ledger, self._placer)
        self._rebalancing = Rebalancing(
            self._handles, self._ledger, self._placer, self._moving, self._routing
        )
        self._preempting = Preempting(self._handles, self._ledger, self._moving)
        self._scaling = ScalingDesk(
            self._handles, self._ledger, self.measures, Scaling(1, settings.most_replicas)
        )
        self._observers = Observers(self._handles)
        self._tenants = TenantDesk()
        self._uses = TenantUses(self._tenants.rate)
        self.members = Members(
            handles=self._handles,
            settings=settings.replica,
            measures=self.measures,
            feed=self.feed,
            clock=clock,
            pace=pace,
            run_dir=self.run_dir,
            endpoint=lambda: self._link.endpoint,
            send=self._link.send,
            launch=launch,
            foreign=bool(settings.upstreams),
            on_lost=self._replica_lost,
            on_join=self._joined,
        )
        self._draining = Draining(self._handles, self._ledger, self._placer, self._moving, self.measures)
        self.reverts = Reverts(self._handles, self._tenants)
        self.specs = Specs(
            self._handles,
            self._tenants,
            begin.wanted,
            settings.replicas,
            lambda: self.reverts.pending,
            spec_dir,
            trouble=lost,
        )
        self.timelines = Timelines(self._ledger)
        self._views = Views(
            settings,
            self._handles,
            self._ledger,
            self._placer,
            self.measures,
            self.timelines,
            simulation,
            self._scaling.status,
            self.specs,
            self._uses,
        )
        states = StateChanges(ready=self._replica_ready, observed=self._draining.observed)
        self._inbox = Inbox(
            self._handles, self._ledger, self._placer, self._moving, self.measures, states, self._link.send
        )
        for replica in begin.ids:
            self.members.add(replica, max(1, len(begin.ids)))
        self.joining: Joining | None = None
        if door is not None and tcp is not None:
            self.joining = Joining(
                door=door,
                link=tcp,
                members=self.members,
                wanted=begin.wanted,
                settings=settings.replica,
                clock=real_clock or time.monotonic,
                drain=self.close_for_restart,
            )
            for replica, written in (known.joined if known is not None else {}).items():
                self.joining.add(replica, bytes.fromhex(written.public), written.host)
        restore(begin, self._handles, self._tenants)
        self.reverts.begin(known.reverts if known is not None else {})
        self.specs.begin(known)
        self._stalls = Stalls(
            self._handles,
            self.members.lifecycles,
            self._ledger,
            TICK_S,
            real_clock or time.monotonic,
            self.measures.stalled,
        )
        self.resizing = Resizing(self.members, self.specs.wanted, self._ledger, settings)
        self.fencing = Fencing(self.members, self._ledger, self._placer, self.resizing)
        #: What the next minute brings under other rules.
        self.outlook = OutlookDesk(
            self._handles, self._ledger, self._tenants.recent, self._tenants.rate, self._step_time
        )
        self.shedding = Shedding(
            self._handles, self._ledger, self.specs.wanted, self.outlook, self._tenants.limits
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        # Seed 0 means that nobody asked for the same ids again.
        self._random = Random(settings.seed) if settings.seed else SystemRandom()

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
        self._tasks.append(asyncio.create_task(self._tick(), name="fleet-tick"))
        gpus = GpuWatch(self._handles, self.members.lifecycles, self.feed)
        self._tasks.append(asyncio.create_task(gpus.run(), name="gpu-health"))
        for task in self._tasks:
            task.add_done_callback(tell_failure)

    async def stop(self, drain_s: float = 0.0, *, hurry: asyncio.Event | None = None) -> None:
        """Take no more, let what runs finish for ``drain_s`` at most and until ``hurry`` is set, end the
        rest, end the replicas. Leaves no process and no file; takes at most ``drain_s`` and a few seconds."""
        self._stopping = True
        await self._until_idle(drain_s, hurry)
        intent = Intent("cancelled", "shutting_down", "")
        for request in list(self._ledger.live.values()):
            cancel(self._ledger, self._placer, self._handles, request.id, intent)
        hurried = hurry is not None and hurry.is_set()
        await self._until_idle(CANCEL_GRACE_S if drain_s and not hurried else 0.0)
        if self.joining is not None:
            await self.joining.close()
        await self.members.stop()
        for request in list(self._ledger.live.values()):
            request.intent = request.intent or intent
            end_as_intended(self._ledger, request)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.members.close()
        self._link.close()
        self._run_dir.close()

    async def _until_idle(self, within_s: float, hurry: asyncio.Event | None = None) -> None:
        """Wait until no request is live; each ends on its own, so there is nothing else to wait on."""
        deadline_s = self._clock() + within_s * self.pace
        for generation in [request.generation for request in self._ledger.live.values()]:
            while not generation.finished and self._clock() < deadline_s:
                if hurry is not None and hurry.is_set():
                    return
                left_s = (deadline_s - self._clock()) / self.pace
                await generation.beyond(len(generation.emitted), min(left_s, HURRY_POLL_S))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._moments.note(self._clock(), self.feed.wall())
            self._tenants.rate.forget_idle(self._clock())
            self._uses.forget_idle(self._clock())
            self._placer.end_overdue()
            self._placer.flush_held()
            self._scaling.tick()
            self._moving.advance()
            if self.settings.rebalance:
                self._rebalancing.tick()
            for handle in self._handles.values():
                if not handle.flush():
                    handle.error = "it has not read its messages for too long"
                    self.members.lifecycles[handle.id].kill()
                if not has_work(handle, self._ledger.on(handle.id)):
                    handle.work_since_s = None
            if self.joining is not None and not self._stopping:
                self.joining.tick()
            if self.settings.replace_stalled and not self._stopping:
                self._stalls.look()
            await self._save_specs()

    async def _save_specs(self) -> None:
        """What nobody waits to be told of: changes that the server itself made, or that could not be written
        before."""
        try:
            await self.specs.save()
        except OSError as error:
            self.specs.unwritten(error)

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
        try:
            if self._stopping:
                raise stopping()
            now_s = self._clock()
            generation = self._taken(self._tenants.at_the_door(spec, now_s), now_s)
        except Refusal as refusal:
            self._uses.refused(spec, self._clock())
            self.feed.event(
                "reject",
                tenant=spec.tenant,
                tier=spec.tier,
                reason=refusal.problem.code,
                message=refusal.problem.detail,
                synthetic=spec.synthetic,
            )
            raise
        return generation

    def _taken(self, spec: GenerationSpec, now_s: float) -> Generation:
        generation = Generation(id=self._new_id(), spec=spec, arrived_s=now_s)
        try:
            self._placer.take(generation)
        except Refusal:
            self._tenants.refused_elsewhere(spec)
            raise
        self._uses.taken(spec, now_s)
        return generation

    def submit_choices(self, specs: Sequence[GenerationSpec]) -> list[Generation]:
        """Take several requests with the same prompt, all of them or (Refusal) none: the first computes it,
        the others share it where they can. Each lives and ends on its own."""
        taken = [self.submit(specs[0])]
        try:
            for spec in specs[1:]:
                taken.append(self.submit(replace(spec, fork_of=taken[0].id)))
        except Refusal:
            for generation in taken:
                self.cancel(generation.id, code="choice_refused")
            raise
        return taken

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
        return cancel(self._ledger, self._placer, self._handles, request_id, Intent(reason, code, actor))

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

    def held_rows(self) -> list[RequestRow]:
        """Requests that wait here because no replica takes them now."""
        return self._views.held_rows()

    # --- replicas ------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """At least one replica takes requests."""
        return not self._stopping and bool(self.ready_replicas())

    def ready_replicas(self) -> list[str]:
        return [handle.id for handle in self._handles.values() if handle.admits]

    def replica_ids(self) -> list[str]:
        return list(self._handles)

    def context_length(self) -> int | None:
        """The longest that an upstream has told; None before one has, and where there are none."""
        if not self.settings.upstreams:
            return None
        return max((each.info.context_length for each in self._handles.values() if each.info), default=None)

    def runners(self) -> list[RunnerInfo]:
        """What the replicas that take requests told of themselves."""
        return [handle.info for handle in self._handles.values() if handle.admits and handle.info is not None]

    def _step_time(self) -> StepTime | None:
        now_s = self._clock()
        itl_s = itl_figures([part.itl for part in self.measures.of.values()], now_s).p50
        return step_time(self.settings.deployment, self.runners(), itl_s)

    def kv_used_ratio(self) -> float | None:
        """Of the pools of the replicas that take requests; None before they told."""
        pools = [
            (handle.kv_used, handle.info.kv_blocks)
            for handle in self._handles.values()
            if handle.admits and handle.info is not None
        ]
        total = sum(total for _, total in pools)
        return sum(used or 0 for used, _ in pools) / total if total else None

    def admissible_blocks(self, tier: Tier) -> int:
        """Blocks up to which requests of ``tier`` are admitted, of all replicas that take any."""
        marks = [
            min(handle.limits.get(mark, 0) for mark in MARKS[tier])
            for handle in self._handles.values()
            if handle.admits
        ]
        return sum(marks)

    def live_users(self) -> bool:
        """Whether any request of a user is live: test traffic is not."""
        return any(not each.generation.spec.synthetic for each in self._ledger.live.values())

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

    # --- what operators do ---------------------------------------------------------------------------------

    def predict_drain(self, replica: str, command: Drain) -> Effect:
        return self._draining.predict(replica, command)

    def drain(self, replica: str, command: Drain) -> None:
        """Close admission and hand its queue to the others; Refusal when that may not be."""
        self._draining.drain(replica, command)

    def drain_mode(self, replica: str, command: Drain) -> DrainMode:
        """What becomes of those that run there if it is drained now."""
        return self._draining.mode(replica, command)

    def predict_undrain(self, replica: str) -> Effect:
        return self._draining.predict_undrain(replica)

    def undrain(self, replica: str, *, actor: str = "") -> None:
        self._draining.undrain(replica, actor=actor)

    def close_for_restart(self, replica: str, command: Drain) -> None:
        """``drain`` that nobody is to find in the replica's spec: it opens again by itself."""
        handle = self._handles[replica]
        reopens = not handle.cordoned
        self._draining.drain(replica, command)
        handle.reopens = reopens

    def reopen_after_restart(self, replica: str) -> None:
        """What ``close_for_restart`` closed takes requests again, at once or when it has loaded."""
        handle = self._handles.get(replica)
        if handle is not None and handle.reopens:
            handle.reopens = False
            self._draining.undrain(replica)

    def cancel_running(self, replica: str, *, actor: str = "") -> int:
        return self._draining.cancel_running(replica, actor=actor)

    def predict_preempt(self, request_id: str, command: Preempt) -> Effect:
        return self._preempting.predict(request_id, command)

    def preempt(self, request_id: str, command: Preempt) -> None:
        """Have its replica take its blocks in the next step; Refusal when it does not run."""
        self._preempting.preempt(request_id, command)

    def predict_headroom(self, command: SetHeadroom) -> Effect:
        return headroom.predict(self._handles, command)

    async def set_headroom(self, command: SetHeadroom) -> dict[str, tuple[int, int]]:
        """Old and new limit, in blocks, of each replica that moved its mark."""
        return await headroom.apply(self._handles, command)

    def limits(self) -> LiveLimits:
        return LiveLimits(replicas={each.id: dict(each.limits) for each in self._handles.values()})

    def predict_limits(self, command: ChangeLimits) -> Effect:
        return live_limits.predict(self._handles, command)

    async def change_limits(self, command: ChangeLimits) -> Moves:
        """Old and new values by replica and name."""
        return await live_limits.apply(self._handles, command)

    def tenants(self) -> Tenants:
        return self.specs.of_tenants(self._tenants.status(self._ledger.live.values(), self._clock()))

    def predict_tenant(self, tenant: str, command: ChangeTenant) -> Effect:
        """What it does to those who are here, and what the next minute brings if the last one comes again."""
        effect = tenant_limits.predict(self._tenants, self.tenants(), self._handles, tenant, command)
        return tenant_limits.with_outlook(
            effect, self.outlook, self._tenants, tenant, command, self.specs.wanted
        )

    async def change_tenant(
        self, tenant: str, command: ChangeTenant
    ) -> tuple[TenantLimits | None, TenantLimits | None]:
        """What the tenant's own limits were and are; None where it goes by the default."""
        return await tenant_limits.apply(self._tenants, self._handles, tenant, command)

    # --- what replicas do ----------------------------------------------------------------------------------

    def _receive(self, sender: bytes, message: FromReplica) -> None:
        self._inbox.receive(sender, message)

    def _tcp_link(self, door: Door) -> TcpLink:
        def on_guest(route: bytes, public: bytes, address: str, message: bytes) -> None:
            if self.joining is not None:
                self.joining.hear(route, public, address, message)

        return TcpLink(
            door.host,
            door.port,
            door.keys,
            self._receive,
            self._after_batch,
            known=door.known,
            on_guest=on_guest,
        )

    def _after_batch(self) -> None:
        self._moving.advance()
        for handle in self._handles.values():
            handle.flush()

    def _replica_ready(self, handle: ReplicaHandle) -> None:
        """A replica has loaded: it gets what operators asked of its former lives, then requests."""
        handle.error = None
        self._routing.forget(handle.id)
        handle.tell(handle.wanted_view)
        # Apart, so that marks which do not fit its pool any more do not keep the rest from it.
        tenants = {name: handle.wanted_limits[name] for name in TENANT_LIMITS & handle.wanted_limits.keys()}
        limits = {name: handle.wanted_limits[name] for name in handle.wanted_limits.keys() - TENANT_LIMITS}
        for wanted in filter(None, (limits, tenants)):
            handle.tell(SetLimits(call=0, **wanted))
        if handle.shed:
            handle.tell(SetShed(on=True))
        if self._stopping:
            return
        if handle.cordoned:
            handle.set_admission(admit=False)
            set_state(handle, self.feed, "draining", message="admission stays closed over the restart")
        else:
            set_state(handle, self.feed, "ready")
            self._placer.flush_held()

    def _replica_lost(self, handle: ReplicaHandle) -> None:
        settle_losses(self._ledger, self._placer, handle)
        self._routing.forget(handle.id)

    def _joined(self, handle: ReplicaHandle) -> None:
        """One more than at the start is wanted as the others are."""
        prime_tenants(handle, self._tenants)
        others = [each for each in self._handles.values() if each is not handle and not each.fenced]
        handle.wanted_limits.update(common_limits(others))
        handle.shed = self.specs.wanted.shed
        self._observers.joined()

    def _measure_end(self, request: Tracked) -> None:
        replica = request.generation.replica
        if replica is not None and replica in self.measures.of:
            self.measures.of[replica].ended(request, self._clock())

    def _new_id(self) -> str:
        while True:
            request_id = f"{self._random.getrandbits(ID_BITS):06x}"
            if not self._ledger.knows(request_id):
                return request_id
