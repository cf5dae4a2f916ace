"""Requests that leave a replica which is alive: its queue when it drains, sequences in the midst of their
output, and single ones on an operator's word.

The replica lets go of a request first and says so; only then is it placed elsewhere. All that the replica
ever says of it comes before that, so that no token is lost and none comes twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infer_engine.fleet.cancelling import cancel_all
from infer_engine.fleet.endings import end_as_intended
from infer_engine.fleet.health import health
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.pacing import Leaver, Room, next_moves
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.serving import is_bound
from infer_engine.fleet.tracked import Tracked
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import Release, Released, Withdrawn


@dataclass(slots=True)
class Moving:
    handles: Mapping[str, ReplicaHandle]
    ledger: Ledger
    placer: Placer
    #: Draining replicas whose sequences go on elsewhere.
    emptying: set[str] = field(default_factory=set[str])

    # --- who goes ------------------------------------------------------------------------------------------

    def empty(self, replica: str) -> None:
        """Have all its sequences go on elsewhere, as others get room for them."""
        self.emptying.add(replica)
        self.advance()

    def keep(self, replica: str) -> None:
        """Let the others stay; those already under way go."""
        self.emptying.discard(replica)

    def send(self, request: Tracked, to: str, actor: str) -> None:
        """Have one go on at ``to``. It is on a replica, and not under way yet."""
        source = request.generation.replica
        if source is None:
            raise ValueError(f"{request.id} is on no replica")
        request.departs(source, "preempted", to=to, actor=actor)
        self.handles[source].tell(Release(ids=[request.id]))

    def advance(self) -> None:
        """Have those leave for whom there is room now. Costs nothing while nobody is to leave."""
        for replica in list(self.emptying):
            handle = self.handles.get(replica)
            if handle is None or handle.state != "draining":
                self.emptying.discard(replica)
                continue
            leavers = self.leavers(handle)
            if not leavers:
                continue
            moves = next_moves(leavers, self.rooms(handle))
            for leaver, to in moves:
                self.ledger.live[leaver.id].departs(replica, "draining", to=to)
            if moves:
                handle.tell(Release(ids=[leaver.id for leaver, _ in moves]))

    def leavers(self, handle: ReplicaHandle) -> list[Leaver]:
        """What runs there, or was preempted there, can go on elsewhere, and is not under way yet."""
        block_size = handle.info.block_size if handle.info is not None else 1
        others = self.others(handle)
        found: list[Leaver] = []
        for request in self.ledger.on(handle.id):
            # Those that wait come back by themselves after admission was closed, in one message.
            stays = request.state == "waiting" and handle.awaits_withdrawn
            if stays or request.departure is not None or request.intent is not None:
                continue
            if is_bound(request, others):
                continue
            found.append(
                Leaver(
                    id=request.id,
                    tier=request.generation.spec.tier,
                    arrived_s=request.generation.arrived_s,
                    tokens=request.known_tokens,
                    blocks=request.needs_blocks(block_size),
                )
            )
        return found

    def others(self, handle: ReplicaHandle) -> list[ReplicaHandle]:
        """Who else takes requests."""
        return [each for each in self.handles.values() if each is not handle and each.admits]

    def rooms(self, but: ReplicaHandle | None = None) -> list[Room]:
        """The other replicas that take requests, with what is on its way to them."""
        now_s = self.ledger.clock()
        rooms: list[Room] = []
        coming: dict[str, list[Tracked]] = {}
        for request in self.ledger.live.values():
            if request.departure is not None and request.departure.to is not None:
                coming.setdefault(request.departure.to, []).append(request)
        for handle in self.handles.values():
            work = bool(self.ledger.on(handle.id))
            if handle is but or not handle.admits or health(handle, now_s, has_work=work) == "stalled":
                continue
            rooms.append(self._room(handle, coming.get(handle.id, [])))
        return rooms

    def _room(self, handle: ReplicaHandle, coming: list[Tracked]) -> Room:
        load = self.placer.loads.of(handle)
        block_size = handle.info.block_size if handle.info is not None else 1
        return Room(
            replica=handle.id,
            prefill_tokens=load.queued_prefill_tokens + sum(each.known_tokens for each in coming),
            token_budget=load.token_budget,
            free_slots=load.slots - load.running - load.waiting - len(coming),
            taken_blocks=load.kv_used_blocks
            + load.kv_promised_blocks
            + sum(each.needs_blocks(block_size) for each in coming),
            admit_limit=handle.limits["admit_limit"],
            batch_limit=handle.limits["batch_limit"],
            total_blocks=load.kv_total_blocks,
        )

    # --- who has left --------------------------------------------------------------------------------------

    def withdrawn(self, handle: ReplicaHandle, message: Withdrawn) -> None:
        """Its queue comes back: each goes to another replica, in the order in which it waited."""
        handle.awaits_withdrawn = max(0, handle.awaits_withdrawn - 1)
        self._place_all(handle, message.ids)
        if handle.cancel_when_withdrawn and not handle.awaits_withdrawn:
            handle.cancel_when_withdrawn = False
            cancel_all(self.ledger, handle)
        self.advance()

    def released(self, handle: ReplicaHandle, message: Released) -> None:
        """It let go of these. Of the others it has told the end, or is about to."""
        released = [each.id for each in message.released]
        for request_id in set(message.asked).difference(released):
            request = self.ledger.live.get(request_id)
            if request is not None and request.generation.replica == handle.id:
                request.departure = None
        self._place_all(handle, released)
        self.advance()

    def _place_all(self, handle: ReplicaHandle, ids: list[str]) -> None:
        for request_id in ids:
            request = self.ledger.live.get(request_id)
            if request is None or request.generation.replica != handle.id:
                continue
            if request.intent is not None:
                end_as_intended(self.ledger, request)
                continue
            request.departs(handle.id, "draining")
            self.placer.hold(request)
        self.placer.flush_held()
