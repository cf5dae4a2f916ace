"""What replicas say, folded into what the fleet knows: one method per message, in the order in which they
came."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from infer_engine.fleet.endings import ending
from infer_engine.fleet.generation import Generation
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.measures import Measures
from infer_engine.fleet.moving import Moving
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.tracked import Tracked
from infer_engine.fleet.waking import Waker
from infer_engine.protocol import Finished, FinishReason, Preempted, Step
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import (
    Abort,
    Admitted,
    Failed,
    FinishedOut,
    FromReplica,
    Loading,
    Observation,
    PreemptedOut,
    Ready,
    Refused,
    Released,
    Started,
    StepReport,
    Stop,
    TokenOut,
    Withdrawn,
)
from infer_engine.replica.wire import replica_of

log = logging.getLogger(__name__)

#: A full cache gives up blocks in nearly every step: they become one event of their sum this often.
EVICT_EVENT_PERIOD_S = 1.0
#: Of a sentence that a replica says.
MOST_CHARACTERS = 2000
#: Said of a request whose tokens did not arrive one after another.
STREAM_GAP = "stream_gap"
#: And of one that got a token which no model of ours has.
UNKNOWN_TOKEN = "unknown_token"


class StateChanges:
    """What the inbox asks of whoever decides on replica states."""

    def __init__(
        self, *, ready: Callable[[ReplicaHandle], None], observed: Callable[[ReplicaHandle], None]
    ) -> None:
        self.ready = ready
        self.observed = observed


@dataclass(slots=True)
class Inbox:
    handles: Mapping[str, ReplicaHandle]
    ledger: Ledger
    placer: Placer
    moving: Moving
    measures: Measures
    states: StateChanges
    #: Tells a sender that is no replica of ours (any more) to end.
    dismiss: Callable[[bytes, Stop], object]
    #: Messages of past incarnations and strangers, since the start.
    ignored: int = 0
    waker: Waker = field(default_factory=Waker)
    #: Who spoke since whoever ends a batch took them: in a large fleet few do in one batch.
    heard: dict[str, ReplicaHandle] = field(default_factory=dict[str, ReplicaHandle])

    def receive(self, sender: bytes, message: FromReplica) -> None:
        handle = self._handle_of(sender)
        if handle is None or message.incarnation != handle.incarnation:
            self.ignored += 1
            log.warning(
                "ignored a %s from %r, which is not the present incarnation", type(message).__name__, sender
            )
            self.dismiss(sender, Stop())
            return
        self.heard[handle.id] = handle
        handle.hear(message, self.ledger.clock(), self.ledger.feed.wall())
        loads = self.placer.loads
        loads.heard(handle, message)
        try:
            self._take(handle, message)
        finally:
            loads.heard(handle, message)

    def _handle_of(self, sender: bytes) -> ReplicaHandle | None:
        handle = self.handles.get(replica_of(sender))
        return handle if handle is not None and handle.identity == sender else None

    def _take(self, handle: ReplicaHandle, message: FromReplica) -> None:
        match message:
            case StepReport():
                self._step_report(handle, message)
            case Observation():
                self._observation(handle, message)
            case Ready():
                self.states.ready(handle)
            case Withdrawn():
                self.moving.withdrawn(handle, message)
            case Released():
                self.moving.released(handle, message)
            case Refused():
                request = self._placed(handle, message.id)
                if request is not None:
                    self.placer.refused(request, _line(message.code), _line(message.message))
            case Started():
                handle.pid = message.pid
            case Failed():
                handle.error = _line(message.error)
            case Loading():
                handle.error = _line(message.trouble) if message.trouble else handle.error
            case _:  # LimitsSet: its caller has heard
                pass

    def _placed(self, handle: ReplicaHandle, request_id: str) -> Tracked | None:
        """The live request if this replica has it; what others say of it does not count."""
        request = self.ledger.live.get(request_id)
        return request if request is not None and request.generation.replica == handle.id else None

    # --- steps ---------------------------------------------------------------------------------------------

    def _step_report(self, handle: ReplicaHandle, report: StepReport) -> None:
        now_s = self.ledger.clock()
        measures = self.measures.of[handle.id]
        measures.stepped(report.duration_s, report.prefill_tokens, report.decode_tokens)
        measures.looked_up(report.prefix_queries_tokens, report.prefix_hit_tokens)
        measures.evicted_blocks += report.evicted_blocks
        measures.swapped_out_bytes += report.swapped_out_bytes
        measures.swapped_in_bytes += report.swapped_in_bytes
        handle.evicted_blocks += report.evicted_blocks
        self.placer.routing.evicted(handle.id, report.evicted_hashes)
        self._tell_evictions(handle, now_s)
        for preempted in report.preempted:
            self._preempted(handle, preempted, now_s)
        for admitted in report.admitted:
            self._admitted(handle, admitted, now_s - report.duration_s)
        for prefilled in report.prefills:
            if (request := self._placed(handle, prefilled.id)) is not None:
                request.generation.log.chunk(now_s, prefilled.tokens)
        spoke = self._tokens(handle, report.tokens, now_s)
        reasons: dict[str, FinishReason] = {
            finished.id: self._finished(handle, finished) for finished in report.finished
        }
        self.waker.wake(spoke)
        self.ledger.feed.step(
            Step(
                replica=handle.id,
                incarnation=handle.incarnation,
                step=report.step,
                at=self.ledger.feed.wall(),
                duration_s=report.duration_s,
                running=report.running,
                waiting=report.waiting,
                decode_tokens=report.decode_tokens,
                prefill_tokens=report.prefill_tokens,
                kv_used=report.kv_used,
                kv_free=report.kv_free,
                kv_cached=report.kv_cached,
                admitted=[each.id for each in report.admitted],
                finished=[Finished(id=each.id, reason=reasons[each.id]) for each in report.finished],
                preempted=[Preempted(id=each.id, mode=each.mode) for each in report.preempted],
            )
        )
        if not report.running and not report.waiting and not self.ledger.on(handle.id):
            handle.work_since_s = None

    def _tell_evictions(self, handle: ReplicaHandle, now_s: float) -> None:
        """Called at every report and observation, so the last of them are not kept back for long."""
        if not handle.evicted_blocks or now_s - handle.evictions_told_s < EVICT_EVENT_PERIOD_S:
            return
        self.ledger.feed.event("cache_evict", replica=handle.id, blocks=handle.evicted_blocks)
        handle.evicted_blocks = 0
        handle.evictions_told_s = now_s

    def _preempted(self, handle: ReplicaHandle, preempted: PreemptedOut, now_s: float) -> None:
        request = self._placed(handle, preempted.id)
        if request is None:
            return
        request.restart_wait()
        request.waiting_since_s = request.preempted_s = now_s
        request.swapped = preempted.mode == "swap"
        request.generation.preemptions += 1
        request.generation.log.preempted(now_s, preempted.mode, preempted.freed_blocks, preempted.redo_tokens)
        spec = request.generation.spec
        self.measures.of[handle.id].preempted(preempted.mode, spec.tier, now_s)
        self.ledger.feed.event(
            "preempt",
            replica=handle.id,
            request=request.id,
            tenant=spec.tenant,
            tier=spec.tier,
            reason=preempted.mode,
            blocks=preempted.freed_blocks,
            tokens=preempted.redo_tokens,
            actor=(request.preempt_actor or None) if preempted.asked else None,
            synthetic=spec.synthetic,
        )

    def _admitted(self, handle: ReplicaHandle, admitted: Admitted, began_s: float) -> None:
        request = self._placed(handle, admitted.id)
        if request is None:
            return
        generation = request.generation
        wait_s = max(0.0, began_s - request.waiting_since_s)
        request.state, request.swapped = "running", False
        request.blocks = admitted.blocks
        generation.log.admitted(began_s, admitted.blocks, resumed=admitted.resumed)
        if generation.admitted_s is None:
            generation.admitted_s = generation.arrived_s + wait_s
            self.measures.of[handle.id].admitted(request, wait_s, self.ledger.clock())
        self.ledger.feed.event(
            "admit",
            replica=handle.id,
            request=request.id,
            tenant=generation.spec.tenant,
            tier=generation.spec.tier,
            blocks=admitted.blocks,
            wait_s=wait_s,
            message="resumed" if admitted.resumed else None,
            synthetic=generation.spec.synthetic,
        )

    def _tokens(self, handle: ReplicaHandle, tokens: list[TokenOut], now_s: float) -> list[Generation]:
        """Append each to its generation; returns those. What is counted is counted once for all: this is the
        server's innermost loop."""
        live, replica, measures = self.ledger.live, handle.id, self.measures.of[handle.id]
        spoke: list[Generation] = []
        intervals: dict[tuple[float, bool], int] = {}
        vocab_size = handle.info.vocab_size if handle.info is not None else 0
        for token in tokens:
            request = live.get(token.id)
            if request is None or request.generation.replica != replica:
                continue
            generation = request.generation
            emitted = len(generation.emitted)
            if emitted == request.emitted_before:
                self.placer.loads.changed(replica)
            if token.index != emitted:
                self._broken_stream(handle, request, token.index, emitted)
                continue
            if token.token >= vocab_size:
                self._no_token(handle, request, token.token, vocab_size)
                continue
            generation.append(token.token, now_s, token.logprobs)
            spoke.append(generation)
            if emitted:
                interval = (now_s - generation.emitted_s[-2], generation.spec.synthetic)
                intervals[interval] = intervals.get(interval, 0) + 1
            else:
                generation.log.first_token(now_s)
                measures.first_token(request, now_s)
        if spoke:
            measures.emitted(len(spoke), now_s)
            measures.next_tokens(intervals, now_s)
        return spoke

    def _broken_stream(self, handle: ReplicaHandle, request: Tracked, index: int, expected: int) -> None:
        """A stream with a hole or an echo in it is wrong: end it rather than go on."""
        # Of a machine that is not ours it says nothing of this server.
        level = logging.ERROR if handle.joined is None else logging.WARNING
        log.log(
            level, "replica %s sent token %d of %s, %d was expected", handle.id, index, request.id, expected
        )
        handle.tell(Abort(id=request.id))
        self.ledger.finish(
            request,
            "error",
            code=STREAM_GAP,
            error=f"token {index} arrived where token {expected} was expected",
        )

    def _no_token(self, handle: ReplicaHandle, request: Tracked, token: int, vocab_size: int) -> None:
        """Whatever computes on from it would fail: the next replica that gets the request, too."""
        log.warning("replica %s sent token %d of %s: it has %d", handle.id, token, request.id, vocab_size)
        handle.tell(Abort(id=request.id))
        self.ledger.finish(
            request,
            "error",
            code=UNKNOWN_TOKEN,
            error=f"token {token} arrived, which is not in the vocabulary of {vocab_size} tokens",
        )

    def _finished(self, handle: ReplicaHandle, finished: FinishedOut) -> FinishReason:
        """End the request; returns the reason under which it ended."""
        request = self._placed(handle, finished.id)
        if request is None:
            return finished.reason
        reason, code, error = ending(request, finished.reason, finished.error and _line(finished.error))
        said = finished.said and _line(finished.said)
        self.ledger.finish(
            request, reason, code=code, error=error, freed_blocks=finished.freed_blocks, said=said
        )
        return reason

    # --- the rest ------------------------------------------------------------------------------------------

    def _observation(self, handle: ReplicaHandle, observation: Observation) -> None:
        self._tell_evictions(handle, self.ledger.clock())
        for row in observation.rows:
            request = self._placed(handle, row.id)
            if request is None:
                continue
            request.core = row
            request.state = row.state
            request.blocks = row.kv_blocks
        if not observation.rows and not self.ledger.on(handle.id):
            handle.work_since_s = None
        self.states.observed(handle)


def _line(text: str) -> str:
    """It goes into logs, and to whoever asks: bounded, and nothing that moves a cursor."""
    return "".join(each if each.isprintable() or each == "\n" else "·" for each in text[:MOST_CHARACTERS])
