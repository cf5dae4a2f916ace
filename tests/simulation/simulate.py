"""The core under random fire: arrivals, aborts, forks, preemptions, limit changes, closing and opening, all
drawn from one seed.

After every step the invariants and the oracle are asked, and every request must end exactly once with exactly
its tokens. ``campaign.py`` runs seed after seed.
"""

import random
import traceback
import zlib
from collections import deque
from pathlib import Path
from typing import Any

from infer_engine.protocol import TenantLimits
from simulation.core_modules import REAL, Core
from simulation.fake_runner import FakeRunner
from simulation.fates import Fate, draw_fate
from simulation.oracle import Oracle, check_map, look
from simulation.states import state_of
from simulation.tally import Tally
from support.forced import ForcedPreemption

STEPS = 4200
#: Ticks without work do not count as steps; more of them than so many for a step are no fire.
MOST_TICKS_PER_STEP = 100

#: Arrivals per tick.
MOODS = {"quiet": 0.05, "steady": 0.3, "burst": 1.0, "long": 0.2}


class SimulationError(AssertionError):
    """Something does not hold. The text ends with the command that replays it."""


class Simulation:
    def __init__(self, seed: int, core: Core = REAL) -> None:
        self.seed = seed
        self.core = core
        self.random = random.Random(seed)
        draw = self.random
        self.block_size = draw.choice([1, 2, 4, 16])
        self.blocks = draw.choice([3, 8, 8, 16, 16, 24, 40, 64])
        self.context = draw.choice(
            [self.blocks * self.block_size // 2 + 2, self.blocks * self.block_size * 2]
        )
        #: Prompts take at most one part in so many of the pool; small ones that grow long make for
        #: preemption.
        self.prompt_share = draw.choice([2, 6, 20])
        self.pool = core.BlockPool(self.blocks, self.block_size, prefix_cache=draw.random() < 0.75)
        self.host = core.HostPool(
            draw.choice([0, 2, self.blocks // 2, self.blocks]),
            draw.choice(["auto", "auto", "swap", "recompute"]),
            core.SwapCost(block_s=1.0, token_s=draw.choice([0.1, 1.0, 2.0]) / self.block_size),
        )
        self.scheduler = core.Scheduler(self.pool, self._limits(), self.context, self.host)
        self.runner = FakeRunner(self.blocks, self.block_size)
        self.oracle = Oracle(self.scheduler, self.runner)
        self.force = draw.choice([0.0, 0.01, 0.05])
        self.forced = ForcedPreemption(self.scheduler, self._choose_victims)
        self.now_s = 0.0
        self.mood = "steady"
        #: Times as many arrivals as elsewhere: only long queues show in which order they stand.
        self.crowd = draw.choice([1, 1, 2])
        self.fates: dict[str, Fate] = {}
        self.live: list[str] = []
        #: Those that no scheduler holds and that may come again.
        self.away: dict[str, None] = {}
        self.recent: deque[str] = deque(maxlen=200)
        #: Those that share, or shared, blocks with the one that they were forked from.
        self.forks: set[str] = set()
        self.digest = 0
        self.tally = Tally()

    def run(self, steps: int) -> Tally:
        """``steps`` steps under fire, then quiet until everything has ended."""
        self.tally.seeds += 1
        ticks = 0
        try:
            while self.tally.steps < steps:
                self._tick()
                ticks += 1
                assert ticks <= MOST_TICKS_PER_STEP * steps, "nothing is ever computed"
            self._drain()
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} in {Path(line.filename).name}:{line.lineno}: "
            what += str(error) or line.line or ""
            replay = f"make simulate SEED={self.seed} STEPS={steps}"
            text = f"seed {self.seed}, step {self.tally.steps}: {what}\nreplay: {replay}"
            raise SimulationError(text) from error
        return self.tally

    # --- one tick ------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        draw = self.random
        self.now_s += draw.choice([0.0, 0.001, 0.03, 3600.0 if draw.random() < 0.01 else 0.02])
        if draw.random() < 0.01:
            self.mood = draw.choice(list(MOODS))
        for _ in range(self._arrivals()):
            self._arrive()
        if draw.random() < 0.04:
            self._abort()
        if draw.random() < 0.1 and self.scheduler.running:
            parent = draw.choice(list(self.scheduler.running.values()))
            for _ in range(draw.choice([1, 1, 1, 2, 4])):
                self._fork(parent)
        if draw.random() < 0.02:
            self._change_limits()
        if draw.random() < (0.005 if self.scheduler.admission_open else 0.05):
            self._close_or_open()
        self._step()

    def _arrivals(self) -> int:
        rate = MOODS[self.mood] * self.crowd
        return int(rate) + (self.random.random() < rate % 1)

    def _step(self) -> None:
        if not self.scheduler.has_work:
            return
        before = look(self.scheduler, self.now_s)
        plan = self.scheduler.step(self.now_s)
        self.oracle.check_plan(plan, before, self.now_s, self.forced.victims)
        self._check()
        for finish in plan.finished:
            self._ended(finish)
        self._count_preempted(plan)
        self.tally.passed.update(before.late)
        self.tally.admitted_past_a_head = self.oracle.passed
        tokens = self.runner.execute(plan)
        if self.random.random() < 0.03:
            self._abort(in_flight=True)
        taken = [chunk.request.id for chunk in plan.chunks if chunk.request.state == "running"]
        finished = self.scheduler.commit(tokens, self.now_s)
        for finish in finished:
            self._ended(finish)
        self.oracle.check_commit(plan)
        for finish in [*plan.finished, *finished]:
            self.runner.forget(finish.id)
        self._check()
        self.tally.steps += 1
        self.tally.hit_tokens += sum(admission.cached_tokens for admission in plan.admitted)
        self.tally.evicted_blocks += len(plan.evicted)
        self.tally.aged, self.tally.yields = self.scheduler.counters.aged, self.scheduler.counters.yields
        self.tally.swaps += sum(preemption.mode == "swap" for preemption in plan.preempted)
        self.tally.swapped_in_blocks += len(plan.swap_in)
        self.tally.copied_blocks += len(plan.copies)
        self.tally.tokens += len(tokens)
        self.tally.preemptions += len(plan.preempted)
        for chunk in plan.chunks:
            if chunk.request.id in tokens and chunk.request.id in taken:
                self.oracle.fair.generated(chunk.request)
        self._note(
            [(c.request.id, c.start, c.count, c.request.block_table[-1]) for c in plan.chunks],
            [a.id for a in plan.admitted],
            [p.id for p in plan.preempted],
            sorted(tokens.items()),
        )
        if plan.step % 16 == 0:
            check_map(self.core, self.scheduler)
            self.tally.reasons.update(self.scheduler.admission.reason_counts())

    def _choose_victims(self, running: list[Any]) -> list[Any]:
        if self.random.random() >= self.force:
            return []
        return self.random.sample(running, min(len(running), self.random.choice([1, 1, 1, 2, 16])))

    def _count_preempted(self, plan: Any) -> None:
        """By who it befell and how. Where the way was chosen by cost, both must be taken now and then."""
        way = "chose" if self.host.choice == "auto" and self.host.total else "must"
        for preemption in plan.preempted:
            self.tally.preempted[f"{way} {preemption.mode}"] += 1
            if preemption.id in self.forced.victims:
                self.tally.preempted["by force"] += 1
            if preemption.id in self.forks:
                self.tally.preempted["fork"] += 1

    def _note(self, *what: object) -> None:
        self.digest = zlib.crc32(repr(what).encode(), self.digest)

    def _check(self) -> None:
        found = self.core.violations(self.scheduler)
        assert not found, "; ".join(found)

    # --- requests ------------------------------------------------------------------------------------------

    def _arrive(self) -> None:
        """Mostly a new request; sometimes one that was handed back comes again, a duplicate, or one too
        long."""
        draw = self.random
        if self.away and draw.random() < 0.3:
            self._add(draw.choice(list(self.away)))
        elif self.live and draw.random() < 0.05:
            self._add_duplicate(draw.choice(self.live))
        else:
            request_id = f"q{len(self.fates)}"
            self.fates[request_id] = draw_fate(
                draw,
                key=len(self.fates),
                now_s=self.now_s,
                capacity=self.blocks * self.block_size,
                prompt_share=1 if self.mood == "long" else self.prompt_share,
                context=self.context,
            )
            self._add(request_id)

    def _fork(self, parent: Any) -> None:
        """Another request with the prompt of a running one, now and then with another salt or a longer
        prompt."""
        draw = self.random
        request_id = f"q{len(self.fates)}"
        fate = draw_fate(
            draw, key=len(self.fates), now_s=self.now_s, capacity=64, prompt_share=1, context=self.context
        )
        extra = [1] * draw.choice([0, 0, 0, 3])
        fate.spec |= {"prompt": parent.prompt + extra, "cache_salt": parent.cache_salt}
        if draw.random() < 0.1:
            fate.spec |= {"cache_salt": "a third tenant"}
        fate.away = []
        self.fates[request_id] = fate
        self._add(request_id, parent.id)
        if fate.request is not None and fate.request.state == "running":
            self.tally.forks += 1
            self.forks |= {request_id, parent.id}

    def _add(self, request_id: str, parent_id: str | None = None) -> None:
        """Hand it to the scheduler with the tokens it has; whatever is refused must be refused rightly."""
        fate = self.fates[request_id]
        self.recent.append(request_id)
        request = self.core.Request(id=request_id, output=list(fate.away or []), **fate.spec)
        scheduler = self.scheduler
        needs = -(-(request.total_tokens + 1) // self.block_size)
        never = needs > self.blocks or len(request.prompt) + request.max_tokens > self.context
        code = self._refusal_of(request, parent_id)
        if never:
            want = "never_fits"
        elif not scheduler.admission_open:
            want = "admission_closed"
        else:
            waited = len(scheduler.waiting) - (code is None and request.state == "waiting")
            full = waited >= scheduler.limits.max_waiting
            # A fork was counted before it joined the batch, and a newcomer before it was pushed.
            tokens = sum(each.total_tokens for each in scheduler.waiting.members() if each is not request)
            tokens += request.total_tokens
            full = full or (waited > 0 and tokens > scheduler.limits.max_waiting_tokens)
            # One that continues was taken before.
            want = "queue_full" if full and not request.output else None
        assert code == want, f"{request_id} was refused with {code}, not {want}"
        if code is None:
            fate.away = None
            fate.request = request
            self.live.append(request_id)
            self.tally.requests += 1
            self.oracle.fair.arrived(
                request, [each for each in scheduler.waiting.members() if each is not request]
            )
            if request.state == "running":
                self.oracle.fair.admitted(request, bool(request.output), request.computed_tokens, False)
                self.oracle.bounds.joined(request, request.computed_tokens)
        elif code == "never_fits" or self.random.random() < 0.5:
            fate.away = None
            fate.ended = "refused"
        if fate.away is None:
            self.away.pop(request_id, None)
        else:
            self.away[request_id] = None

    def _add_duplicate(self, request_id: str) -> None:
        code = self._refusal_of(self.core.Request(id=request_id, **self.fates[request_id].spec))
        assert code in ("duplicate_id", "never_fits"), f"{request_id} was taken twice"

    def _refusal_of(self, request: Any, parent_id: str | None = None) -> str | None:
        """Add it; the code if it was refused."""
        try:
            if parent_id is None:
                self.scheduler.add(request, self.now_s)
            else:
                self.scheduler.fork(parent_id, request, self.now_s)
        except self.core.Refusal as refusal:
            self.tally.refused[refusal.code] += 1
            return refusal.code
        return None

    def _abort(self, in_flight: bool = False) -> None:
        """Any id in any state, and some that there never were; a second time does nothing. ``in_flight``: a
        plan was made and is not committed."""
        draw = self.random
        others = draw.sample(list(self.recent), min(2, len(self.recent)))
        target = draw.choice([*self.live, *others, "nobody"])
        # What waits with a past is rare, and it is there that aborts went wrong elsewhere.
        started = [request.id for request in self.scheduler.waiting if request.output or request.preemptions]
        if started and draw.random() < 0.3:
            target = draw.choice(started)
        request = self.scheduler.get(target)
        alive = request is not None
        state = state_of(request, self.pool) if alive else "not there"
        self.tally.aborted[f"{state}, in flight" if in_flight and alive else state] += 1
        held = self.pool.used
        reason = draw.choice(["cancelled", "cancelled", "stop"])
        finish = self.scheduler.abort(target, reason)
        assert (finish is not None) == alive
        if finish is not None:
            assert finish.reason == reason
            assert self.pool.used == held - finish.freed_blocks, "an aborted request kept blocks"
            self._ended(finish, aborted=True)
            self._check()
        assert self.scheduler.abort(target) is None

    def _ended(self, finish: Any, aborted: bool = False) -> None:
        fate = self.fates[finish.id]
        assert fate.ended is None, f"{finish.id} ended twice: {fate.ended}, {finish.reason}"
        fate.ended = finish.reason
        self.live.remove(finish.id)
        self.tally.finished[finish.reason] += 1
        output = fate.request.output
        assert output == fate.expected[: len(output)], f"{finish.id} lost or repeated tokens"
        assert finish.generated_tokens == len(output)
        whole = len(output) == len(fate.expected)
        if aborted:
            assert not whole, f"{finish.id} was complete and had not ended"
        elif finish.error == "deadline_exceeded":
            assert fate.spec["deadline_s"] <= self.now_s, f"{finish.id} ended before its deadline"
            self.tally.late += 1
        elif finish.reason == "error":
            tokens = len(fate.spec["prompt"]) + finish.generated_tokens
            assert tokens == self.blocks * self.block_size + 1, f"{finish.id} ended with room for more"
        else:
            assert finish.reason == ("stop" if fate.stops else "length")
            assert whole, f"{finish.id} ended with {len(output)} of {len(fate.expected)} tokens"

    # --- the operator --------------------------------------------------------------------------------------

    def _limits(self) -> Any:
        draw = self.random
        max_running = draw.choice([1, 2, 4, 8, 12])
        return self.core.Limits(
            admit_limit=draw.choice(
                [self.blocks, self.blocks, self.blocks * 9 // 10, draw.randint(0, self.blocks)]
            ),
            batch_limit=draw.choice([self.blocks, self.blocks * 65 // 100, draw.randint(0, self.blocks)]),
            max_running=max_running,
            token_budget=max_running + draw.choice([0, 1, 8, 50, 500]),
            max_waiting=draw.choice([2, 5, 10, 40]),
            max_passes=draw.choice([0, 1, 3, 8]),
            age_steps=draw.choice([5, 30, 2000]),
            max_waiting_tokens=draw.choice([0, 50, 500, 10_000]),
            long_prefill_tokens=draw.choice([1, 4, 16, 16, 1024]),
            max_long_prefills=draw.choice([1, 1, 2, 8]),
            tenant_default=self._tenant_limits(),
            tenants={"flood": self._tenant_limits()} if draw.random() < 0.5 else {},
        )

    def _tenant_limits(self) -> TenantLimits:
        draw = self.random
        return TenantLimits(
            kv_share=draw.choice([None, None, None, 0.01, 0.3, 0.6]),
            long_prefills=draw.choice([None, None, 1, 2]),
        )

    def _change_limits(self) -> None:
        """Some of them, sometimes to what is not allowed: then nothing may change."""
        draw = self.random
        new = self._limits()
        names = [
            "admit_limit",
            "batch_limit",
            "max_running",
            "token_budget",
            "max_waiting",
            "max_passes",
            "age_steps",
            "max_waiting_tokens",
            "long_prefill_tokens",
            "max_long_prefills",
            "tenant_default",
            "tenants",
        ]
        changes = {name: getattr(new, name) for name in draw.sample(names, draw.randint(1, len(names)))}
        if draw.random() < 0.1:
            changes["admit_limit"] = draw.choice([-1, self.blocks + 1])
        old = self.scheduler.limits
        running = len(self.scheduler.running)
        merged = {name: changes.get(name, getattr(old, name)) for name in names}
        merged["tenants"] = {**old.tenants, **changes.get("tenants", {})}
        budget_covers_batch = merged["token_budget"] >= max(merged["max_running"], running)
        allowed = budget_covers_batch and 0 <= merged["admit_limit"] <= self.blocks
        try:
            before, after = self.scheduler.set_limits(**changes)
            assert allowed, f"{changes} were accepted"
            assert before == old
            assert {name: getattr(after, name) for name in names} == merged
            self.tally.changed.update(changes.keys())
        except self.core.LimitsError:
            assert not allowed, f"{changes} were refused"
            assert self.scheduler.limits is old
            self.tally.changed["refused"] += 1
        assert len(self.scheduler.running) == running, "a limit evicted somebody"
        self.oracle.age_slack = max(self.oracle.age_slack, old.age_steps - self.scheduler.limits.age_steps)
        self.oracle.most_passes = max(self.oracle.most_passes, self.scheduler.limits.max_passes)

    def _close_or_open(self) -> None:
        if not self.scheduler.admission_open:
            self.scheduler.open_admission()
            return
        queue = list(self.scheduler.waiting)
        states = [state_of(request, self.pool) for request in queue]
        handed_back = self.scheduler.close_admission()
        assert handed_back == queue, "the queue was handed back in another order"
        assert len(self.scheduler.waiting) == 0
        self.tally.closed += 1
        for request, state in zip(handed_back, states, strict=True):
            fate = self.fates[request.id]
            assert request.output == fate.expected[: len(request.output)], (
                f"{request.id} lost or repeated tokens"
            )
            assert len(request.output) < len(fate.expected)
            fate.away = list(request.output)
            self.tally.handed_back[state] += 1
            self.away[request.id] = None
            self.live.remove(request.id)
            self.oracle.passes.pop(request.id, None)
        self._check()

    def _drain(self) -> None:
        """Nothing more arrives: all must end, in a number of steps that bounds the work left."""
        self.scheduler.open_admission()
        self.forced.enabled = False
        work = sum(r.total_tokens + r.max_tokens for r in map(self.scheduler.get, self.live))
        deadline = self.tally.steps + 100 + 4 * work
        while self.scheduler.has_work:
            assert self.tally.steps < deadline, f"{len(self.live)} requests do not come to an end"
            self.now_s += 0.01
            self._step()
        assert not self.live
        unfinished = [key for key, fate in self.fates.items() if fate.ended is None and fate.away is None]
        assert not unfinished, f"never ended: {unfinished[:8]}"
        assert len(self.host.free_list) == self.host.total, "host blocks were lost"
        assert (self.pool.available, self.pool.used) == (self.pool.total, 0), "blocks were lost"
        self._note(self.tally.steps, sorted(self.tally.finished.items()))
