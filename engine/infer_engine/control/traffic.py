"""Injected test traffic: tagged synthetic, first to be preempted, held back while real requests wait, capped,
and gone by itself when real users suffer."""

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import get_args

from msgspec import structs

from infer_engine.control.corpus import PROFILES, Ask, Profile, arrivals, compose
from infer_engine.control.decode import MAX_DURATION_S, MAX_RATE_PER_S
from infer_engine.control.guard_rail import may_send, suffering
from infer_engine.control.operations import Handle, OperationFailed, Operations
from infer_engine.control.problems import echo
from infer_engine.control.real_ttft import RealTtft
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, GenerationSpec, Refusal, refuse
from infer_engine.model.sampling import Sampling
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import (
    Effect,
    Inject,
    Operation,
    StopInjection,
    TrafficStatus,
)

TENANT = "synthetic"
#: Below every priority a client can ask for: first to be preempted. Admission goes by arrival, not by
#: priority; that real requests do not queue behind test traffic is the guard rail's doing.
PRIORITY = -1_000
MAX_IN_FLIGHT = 64
#: Arrivals, ends and the guard rail are looked at this often.
TURN_S = 0.1
GUARD_PERIOD_S = 0.5
#: No request takes more tokens, prompt and answer together, whatever the model could.
MOST_ROOM_TOKENS = 8_192
#: How long requests in flight may take after the last one was sent.
LINGER_S = 60.0


class Injector:
    """One injection at a time, run as an operation. ``wall`` gives Unix seconds."""

    def __init__(
        self,
        fleet: Fleet,
        tokenizer: Tokenizer,
        operations: Operations,
        context_length: int,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._fleet = fleet
        self._tokenizer = tokenizer
        self._operations = operations
        self._context_length = context_length
        self._wall = wall
        self._status = TrafficStatus()
        self._in_flight: list[Generation] = []
        self._operation: Operation | None = None
        self._real_ttft = RealTtft(fleet.measures, fleet.now)
        #: More than real replicas are asked for at once: simulated ones hurt nobody.
        self._most_in_flight = MAX_IN_FLIGHT
        if fleet.is_simulated:
            self._most_in_flight *= len(fleet.replica_ids())

    def status(self) -> TrafficStatus:
        return structs.replace(self._status, in_flight=len(self._in_flight))

    def predict(self, command: Inject) -> Effect:
        """Refusal when the profile is unknown (422), traffic runs already or no replica is ready (409)."""
        _profile(command.profile)
        under_way = self._operations.running("inject")
        if under_way is not None:
            raise refuse(
                409, "injection_running", "Test traffic is running already.", f"It is {under_way.id}."
            )
        totals = self._fleet.status().totals
        if totals.ready == 0:
            raise refuse(
                409, "no_ready_replica", "No replica is ready to take requests.", numbers={"ready": 0}
            )
        requests = command.rate_per_s * command.duration_s
        warnings: list[str] = []
        if self._fleet.pace != 1.0:
            real_s = command.duration_s / self._fleet.pace
            warnings.append(f"simulated seconds are meant: {command.duration_s:g} of them take {real_s:g} s")
        if totals.kv_used_ratio is not None and totals.kv_used_ratio > 0.8:
            warnings.append(f"KV use is {totals.kv_used_ratio:.0%} already: expect waiting and preemptions")
        if totals.waiting:
            warnings.append(
                "1 request waits already"
                if totals.waiting == 1
                else f"{totals.waiting} requests wait already"
            )
        return Effect(
            summary=[
                f"about {_requests(requests, command.profile)} over {command.duration_s:g} s "
                f"({command.rate_per_s:g}/s, tier {command.tier}), at most {self._most_in_flight} at once",
                "tagged synthetic, first to be preempted, held back while real requests wait; "
                "stops by itself when they suffer",
            ],
            numbers={
                "requests": requests,
                "rate_per_s": command.rate_per_s,
                "duration_s": command.duration_s,
                "kv_used_ratio": totals.kv_used_ratio,
                "max_rate_per_s": MAX_RATE_PER_S,
                "max_duration_s": MAX_DURATION_S,
            },
            warnings=warnings,
        )

    def start(self, command: Inject) -> Operation:
        """Call ``predict`` first: it refuses."""
        now = self._wall()
        operation = self._operations.start(
            "inject",
            "fleet",
            lambda handle: self._work(handle, command),
            actor=command.actor,
            reason=command.reason,
            deadline_at=now + command.duration_s / self._fleet.pace,
            params={
                "profile": command.profile,
                "rate_per_s": command.rate_per_s,
                "duration_s": command.duration_s,
                "tier": command.tier,
                "seed": command.seed,
            },
        )
        self._operation = operation
        self._in_flight = []
        self._real_ttft.begin()
        self._status = TrafficStatus(
            running=True,
            profile=command.profile,
            tier=command.tier,
            rate_per_s=command.rate_per_s,
            started_at=now,
            ends_at=now + command.duration_s / self._fleet.pace,
        )
        self._fleet.feed.event(
            "traffic",
            reason="started",
            tier=command.tier,
            message=f"test traffic: {command.profile}, {command.rate_per_s:g}/s for {command.duration_s:g} s",
            synthetic=True,
        )
        return operation

    def predict_stop(self) -> Effect:
        if not self._status.running:
            return Effect(summary=["no test traffic is running: nothing will change"])
        return Effect(
            summary=[f"no more test requests; those in flight ({len(self._in_flight)}) are cancelled"],
            numbers={"in_flight": float(len(self._in_flight)), "sent": float(self._status.sent)},
        )

    def stop(self, command: StopInjection) -> Operation:
        """End the traffic now: nothing more is sent, what is in flight is cancelled."""
        under_way = self._operations.running("inject")
        if under_way is None:
            message = "no test traffic was running"
        else:
            self._end(under_way.id, "stopped by an operator")
            self._operations.cancel(under_way.id, "stopped by an operator")
            message = f"{under_way.id} stopped after {self._status.sent} requests"
        return self._operations.record(
            "inject-stop", "fleet", message, actor=command.actor, reason=command.reason
        )

    # --- the traffic itself --------------------------------------------------------------------------------

    async def _work(self, handle: Handle, command: Inject) -> None:
        try:
            await self._send_all(handle, command)
            await self._linger(handle)
        except OperationFailed as failure:
            self._end(handle.id, str(failure))
            raise
        finally:
            self._end(handle.id, None)

    def _end(self, operation_id: str, because: str | None) -> None:
        """Once per injection, whoever is first: its work, or the operator who stops it before its work
        began."""
        if self._operation is None or self._operation.id != operation_id:
            return
        self._operation = None
        message = f"test traffic ended: {because or 'its time was over'}; {self._progress()}"
        for generation in self._in_flight:
            if not generation.finished:
                self._fleet.cancel(generation.id, code="injection_stopped")
        self._in_flight = []
        self._status = structs.replace(self._status, running=False, stopped_because=because)
        self._fleet.feed.event("traffic", reason="stopped", message=message, synthetic=True)

    async def _send_all(self, handle: Handle, command: Inject) -> None:
        now, pace = self._fleet.now, self._fleet.pace
        random = Random(command.seed)
        profile = _profile(command.profile)
        gaps = arrivals(profile, random, command.rate_per_s)
        end_s = now() + command.duration_s
        due_s = now() + next(gaps)
        guard_s = now()
        room_tokens = self._room_tokens()
        while now() < end_s:
            room = self._may_send() if due_s <= now() else 0
            while due_s <= min(now(), end_s):
                room -= self._send(compose(profile, random, room_tokens), random, command, room=room)
                due_s += next(gaps)
            if now() >= guard_s:
                guard_s = now() + GUARD_PERIOD_S
                self._watch_real_users()
            self._collect(handle)
            left_s = min(due_s, end_s, now() + TURN_S * pace) - now()
            await asyncio.sleep(max(0.0, left_s / pace))

    async def _linger(self, handle: Handle) -> None:
        deadline_s = self._fleet.now() + LINGER_S
        while self._in_flight and self._fleet.now() < deadline_s:
            self._watch_real_users()
            await asyncio.sleep(TURN_S)
            self._collect(handle)

    def _may_send(self) -> int:
        room = may_send(self._fleet.rows(None, "waiting"), len(self._fleet.ready_replicas()))
        return min(room, self._most_in_flight - len(self._in_flight))

    def _send(self, ask: Ask, random: Random, command: Inject, *, room: int) -> bool:
        """True when it was sent; there must be ``room`` for it."""
        seed = random.getrandbits(31)
        if room <= 0:
            self._status = structs.replace(self._status, not_sent=self._status.not_sent + 1)
            return False
        spec = GenerationSpec(
            prompt=self._prompt(ask),
            max_tokens=ask.max_tokens,
            sampling=Sampling(temperature=0.8, seed=seed),
            stop_token_ids=tuple(sorted(self._tokenizer.stop_ids)),
            tenant=TENANT,
            tier=command.tier,
            priority=PRIORITY,
            synthetic=True,
        )
        self._status = structs.replace(self._status, sent=self._status.sent + 1)
        try:
            self._in_flight.append(self._fleet.submit(spec))
        except Refusal:
            self._status = structs.replace(self._status, failed=self._status.failed + 1)
        return True

    def _prompt(self, ask: Ask) -> tuple[int, ...]:
        """The question in the model's chat template, with its text cut until it fits."""
        text = ask.text
        while True:
            if self._tokenizer.has_chat_template:
                tokens = self._tokenizer.chat_prompt([{"role": "user", "content": text}])
            else:
                tokens = self._tokenizer.completion_prompt(text)
            if len(tokens) <= ask.prompt_tokens or not text:
                return tuple(tokens)
            text = text[: len(text) * ask.prompt_tokens // (len(tokens) + 1)]

    def _room_tokens(self) -> int:
        """Tokens that a request may take: a fraction of the smallest pool, and the model's context if that is
        not too long for test traffic."""
        pools = [
            kv.total * kv.block_size
            for kv in (replica.kv for replica in self._fleet.status().replicas)
            if kv.total is not None and kv.block_size is not None
        ]
        return max(64, min([self._context_length, MOST_ROOM_TOKENS, *(pool // 4 for pool in pools)]))

    def _collect(self, handle: Handle) -> None:
        ended = [generation for generation in self._in_flight if generation.finished]
        if ended:
            self._in_flight = [generation for generation in self._in_flight if not generation.finished]
            well = sum(generation.finish_reason in ("stop", "length") for generation in ended)
            self._status = structs.replace(
                self._status,
                finished=self._status.finished + well,
                failed=self._status.failed + len(ended) - well,
            )
        handle.update(done=self._status.finished, total=self._status.sent, message=self._progress())

    def _progress(self) -> str:
        status = self.status()
        skipped = f", {status.not_sent} not sent (too much waits)" if status.not_sent else ""
        return f"{status.sent} sent, {status.finished} finished, {status.failed} failed{skipped}"

    def _watch_real_users(self) -> None:
        because = suffering(
            self._fleet.rows(None, "waiting"), self._real_ttft.p95_s(), self._real_ttft.baseline_s
        )
        if because is not None:
            raise OperationFailed(because)


def _requests(count: float, kind: str) -> str:
    shown = f"{count:.0f}"
    return f"1 {kind} request" if shown == "1" else f"{shown} {kind} requests"


def _profile(name: str) -> Profile:
    for profile in get_args(Profile):
        if profile == name:
            return profile
    raise refuse(
        422,
        "invalid_field",
        "profile does not fit.",
        f"allowed are {', '.join(PROFILES)}, got {echo(name)}.",
        field="profile",
    )
