"""The step loop over a scripted runner: what is sent when, and that every view adds up."""

from collections import Counter
from dataclasses import fields
from random import Random

import msgspec
import pytest
from infer_engine.core.limits import LIMIT_NAMES, LimitChanges, Limits
from infer_engine.core.observe import block_runs
from infer_engine.protocol import TenantLimits
from infer_engine.replica.account import MOST_WAITING_ROWS
from infer_engine.replica.messages import (
    CREDIT,
    Abort,
    Ack,
    LimitsSet,
    Observation,
    Observe,
    Refused,
    SetAdmission,
    SetLimits,
    StepReport,
    Stop,
    ToReplica,
    Withdrawn,
)
from infer_engine.replica.step_loop import MOST_INBOUND, StepLoop
from support.replicas import (
    FIRST_TOKEN,
    Clock,
    ScriptedLink,
    ScriptedRunner,
    make_loop,
    make_scheduler,
    runner_info,
    submit,
)


class Bench:
    """One loop and everything around it."""

    def __init__(
        self,
        *,
        kv_blocks: int = 16,
        admit_limit: int | None = None,
        max_running: int = 4,
        max_waiting: int = 100,
        token_budget: int = 64,
        prefix_cache: bool = False,
        host_blocks: int = 0,
    ) -> None:
        self.clock = Clock()
        self.link = ScriptedLink(self.clock)
        self.runner = ScriptedRunner(runner_info(kv_blocks))
        self.scheduler = make_scheduler(
            self.runner.info,
            admit_limit=admit_limit,
            max_running=max_running,
            max_waiting=max_waiting,
            token_budget=token_budget,
            prefix_cache=prefix_cache,
            host_blocks=host_blocks,
        )
        self.loop: StepLoop = make_loop(self.runner, self.scheduler, self.link, self.clock)

    def hear(self, *messages: ToReplica) -> None:
        self.link.inbound.extend(messages)

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.loop.turn()

    def until_idle(self) -> None:
        for _ in range(10_000):
            self.loop.turn()
            if not self.scheduler.has_work and not self.link.inbound:
                return
        raise AssertionError("the work never ended")

    @property
    def reports(self) -> list[StepReport]:
        return self.link.of(StepReport)

    @property
    def observations(self) -> list[Observation]:
        return self.link.of(Observation)


def tokens_of(reports: list[StepReport], request_id: str) -> list[tuple[int, int]]:
    return [
        (token.index, token.token) for report in reports for token in report.tokens if token.id == request_id
    ]


def test_idle_waits_in_the_link_and_observes_once_a_second() -> None:
    bench = Bench()
    bench.turns(1)  # the first view
    before_s = bench.clock.now_s
    bench.link.waits_s.clear()
    bench.turns(10)
    assert bench.reports == []
    assert bench.runner.steps == 0
    assert all(wait_s > 0.5 for wait_s in bench.link.waits_s), "an idle loop must sleep"
    assert bench.clock.now_s - before_s == pytest.approx(10.0)
    assert len(bench.observations) == 11


def test_a_request_runs_to_its_end_with_every_token_once() -> None:
    bench = Bench()
    bench.hear(submit("a", prompt_tokens=5, max_tokens=3))
    bench.until_idle()
    assert tokens_of(bench.reports, "a") == [(0, FIRST_TOKEN + 5), (1, FIRST_TOKEN + 6), (2, FIRST_TOKEN + 7)]
    assert [report.step for report in bench.reports] == [1, 2, 3]
    assert [(each.id, each.blocks) for each in bench.reports[0].admitted] == [("a", 2)]
    last = bench.reports[-1].finished[0]
    assert (last.id, last.reason, last.freed_blocks, last.generated_tokens) == ("a", "length", 2, 3)
    assert (bench.reports[-1].kv_used, bench.reports[-1].kv_free) == (0, 16)


def test_tokens_emitted_elsewhere_are_continued_not_repeated() -> None:
    bench = Bench()
    bench.hear(submit("a", prompt_tokens=5, max_tokens=4, emitted=[7, 8]))
    bench.until_idle()
    assert [index for index, _ in tokens_of(bench.reports, "a")] == [2, 3]


def test_credit_stops_the_steps_until_they_are_acknowledged() -> None:
    bench = Bench(kv_blocks=400)
    bench.hear(submit("a", prompt_tokens=1, max_tokens=CREDIT + 100))
    bench.turns(CREDIT + 50)
    assert len(bench.reports) == CREDIT
    assert bench.link.waits_s[-1] > 0.5, "without credit the loop must sleep, not spin"
    views = len(bench.observations)
    bench.turns(20)
    assert len(bench.reports) == CREDIT
    assert len(bench.observations) == views, "nothing is piled up on a server that does not keep up"
    bench.hear(Ack(reports=10))
    bench.turns(20)
    assert len(bench.reports) == CREDIT + 10
    bench.hear(Ack(reports=1_000_000))
    bench.until_idle()
    assert len(bench.reports) == CREDIT + 100


def test_aborting_the_last_running_request_frees_its_blocks_in_the_next_report() -> None:
    bench = Bench()
    bench.hear(submit("a", prompt_tokens=9, max_tokens=40))
    bench.turns(3)
    assert bench.reports[-1].kv_used == 3
    step = bench.reports[-1].step
    bench.hear(Abort(id="a"))
    bench.turns(1)
    report = bench.reports[-1]
    assert report.step == step + 1
    assert [(each.id, each.reason, each.freed_blocks) for each in report.finished] == [("a", "cancelled", 3)]
    assert (report.kv_used, report.kv_free, report.tokens) == (0, 16, [])
    assert bench.observations[-1].step == report.step
    assert bench.observations[-1].rows == []


def test_abort_of_a_queued_request_and_of_nobody() -> None:
    bench = Bench(max_running=1)
    bench.hear(submit("a", max_tokens=20), submit("b", max_tokens=20))
    bench.turns(2)
    assert bench.reports[-1].waiting == 1
    bench.hear(Abort(id="b", reason="stop"), Abort(id="b"), Abort(id="nobody"))
    bench.turns(1)
    report = bench.reports[-1]
    assert [(each.id, each.reason, each.freed_blocks) for each in report.finished] == [("b", "stop", 0)]
    assert (report.running, report.waiting) == (1, 0)
    bench.until_idle()
    assert [each.id for report in bench.reports for each in report.finished] == ["b", "a"]


def test_what_cannot_be_taken_is_refused_and_leaves_nothing() -> None:
    bench = Bench(kv_blocks=8, max_waiting=1)
    bench.hear(
        submit("long", prompt_tokens=32),
        submit("endless", prompt_tokens=4, max_tokens=5000),
        submit("one"),
        submit("one"),
        submit("two"),
    )
    bench.turns(1)
    refused = {message.id: message for message in bench.link.of(Refused)}
    assert {each: refused[each].code for each in refused} == {
        "long": "never_fits",
        "endless": "never_fits",
        "one": "duplicate_id",
        "two": "queue_full",
    }
    assert refused["endless"].numbers["context_length"] == 4096
    bench.hear(SetAdmission(open=False), submit("late"))
    bench.until_idle()
    assert bench.link.of(Refused)[-1].code == "admission_closed"
    assert [each.id for report in bench.reports for each in report.finished] == ["one"]


def test_closing_admission_hands_the_queue_back_in_order_before_the_next_step() -> None:
    bench = Bench(max_running=1)
    bench.hear(submit("a", max_tokens=5), submit("b"), submit("c"), submit("d"))
    bench.turns(1)
    bench.hear(SetAdmission(open=False))
    bench.turns(1)
    withdrawn = bench.link.of(Withdrawn)
    assert [message.ids for message in withdrawn] == [["b", "c", "d"]]
    assert bench.link.sent.index(withdrawn[0]) < bench.link.sent.index(bench.reports[1])
    assert bench.observations[-1].admission_open is False
    bench.until_idle()
    assert bench.runner.steps == 5
    bench.hear(SetAdmission(open=True), submit("b"))
    bench.until_idle()
    assert bench.reports[-1].finished[0].id == "b"


def test_limits_are_set_whole_or_not_at_all_and_seen_at_once() -> None:
    bench = Bench()
    bench.turns(1)
    views = len(bench.observations)
    bench.hear(SetLimits(call=7, admit_limit=3, max_running=2))
    bench.turns(1)
    answer = bench.link.of(LimitsSet)[-1]
    assert (answer.call, answer.error) == (7, None)
    assert (answer.old["admit_limit"], answer.new["admit_limit"]) == (16, 3)
    assert (answer.old["max_running"], answer.new["max_running"]) == (4, 2)
    assert len(bench.observations) == views + 1
    assert (bench.observations[-1].admit_limit, bench.observations[-1].max_running) == (3, 2)

    bench.hear(SetLimits(call=8, admit_limit=5, batch_limit=17))
    bench.turns(1)
    refused = bench.link.of(LimitsSet)[-1]
    assert refused.error is not None
    assert "batch_limit" in refused.error
    assert bench.scheduler.limits.admit_limit == 3


def test_more_observations_while_somebody_looks_and_blocks_only_when_asked() -> None:
    bench = Bench()
    bench.turns(1)
    assert bench.observations[-1].blocks is None
    bench.hear(Observe(hz=10, blocks=True))
    bench.turns(1)
    assert bench.observations[-1].blocks is not None, "the new view comes at once"
    before = len(bench.observations)
    start_s = bench.clock.now_s
    while bench.clock.now_s < start_s + 5:
        bench.turns(1)
    assert len(bench.observations) - before == pytest.approx(50, abs=1)


def test_the_last_view_before_idling_is_not_a_stale_one() -> None:
    bench = Bench()
    bench.hear(Observe(hz=0, blocks=True), submit("a", max_tokens=6))
    bench.until_idle()
    last = bench.observations[-1]
    assert last.step == bench.reports[-1].step
    assert (last.kv_used, last.rows) == (0, [])
    assert last.blocks is not None
    assert [(run.first, run.count, run.state) for run in block_runs(last.blocks)] == [(0, 16, "free")]


def test_of_a_long_queue_the_first_are_told_and_the_rest_are_counted() -> None:
    bench = Bench(max_running=1, max_waiting=1_000)
    queued = [f"w{number}" for number in range(MOST_WAITING_ROWS + 50)]
    bench.hear(submit("a", max_tokens=40), *(submit(name) for name in queued))
    bench.turns(3)
    bench.hear(Observe(hz=0))
    bench.turns(1)
    told = bench.observations[-1]
    assert told.waiting == len(queued)
    assert [row.id for row in told.rows] == ["a", *queued[:MOST_WAITING_ROWS]]


def test_observations_are_left_out_when_the_server_does_not_keep_up() -> None:
    bench = Bench()
    bench.link.has_room = False
    bench.link.waits_s.clear()
    bench.turns(5)
    assert bench.observations == []
    assert all(wait_s > 0.5 for wait_s in bench.link.waits_s[1:]), "it must not spin on a full pipe"


def test_a_flood_of_messages_does_not_stop_the_batch() -> None:
    bench = Bench()
    bench.hear(submit("a", max_tokens=50))
    bench.turns(1)
    bench.hear(*[Abort(id="nobody")] * (3 * MOST_INBOUND))
    bench.turns(2)
    assert len(bench.reports) == 3
    assert len(bench.link.inbound) == MOST_INBOUND


def test_a_failing_runner_fails_the_replica() -> None:
    bench = Bench()
    bench.runner.error = "device lost"
    bench.hear(submit("a"))
    with pytest.raises(RuntimeError, match="device lost"):
        bench.turns(1)


def test_stop_ends_the_loop_between_two_steps() -> None:
    bench = Bench()
    bench.hear(submit("a", max_tokens=50))
    bench.turns(2)
    bench.hear(Stop())
    bench.loop.run()
    assert bench.runner.steps == 2


@pytest.mark.parametrize("seed", range(8))
def test_every_observation_adds_up(seed: int) -> None:
    """Random work on a pool that is too small for it, so that it preempts: at every view the blocks add up to
    the pool and to what the rows say; no token is lost or repeated; at the end nothing is left."""
    random = Random(seed)
    bench = Bench(kv_blocks=12, max_running=5, max_waiting=1000, token_budget=8)
    bench.hear(Observe(hz=50, blocks=True))
    ids = [f"q{number}" for number in range(60)]
    todo = list(ids)
    checked = 0
    while todo or bench.scheduler.has_work or bench.link.inbound:
        roll = random.random()
        if todo and roll < 0.4:
            bench.hear(submit(todo.pop(), random.randint(1, 12), random.randint(1, 30)))
        elif roll < 0.45:
            bench.hear(Abort(id=random.choice(ids)))
        elif roll < 0.5:
            bench.hear(SetLimits(call=1, admit_limit=random.randint(0, 12)))
        bench.hear(Ack(reports=1))
        bench.turns(1)
        bench.clock.now_s += 0.02
        for view in bench.observations[checked:]:
            check_view(view, total=12)
        checked = len(bench.observations)
    assert checked > 60
    assert sum(len(report.preempted) for report in bench.reports) > 0, "the pool was meant to be too small"
    assert bench.loop.invariant_violations == 0
    for request in ids:
        assert [index for index, _ in tokens_of(bench.reports, request)] == list(
            range(len(tokens_of(bench.reports, request)))
        )
    ended = Counter(each.id for report in bench.reports for each in report.finished)
    assert set(ended) == set(ids) - {message.id for message in bench.link.of(Refused)}
    assert set(ended.values()) == {1}
    assert bench.observations[-1].kv_free == 12


def check_view(view: Observation, total: int) -> None:
    assert view.blocks is not None
    runs = block_runs(view.blocks)
    assert sum(run.count for run in runs) == total
    assert [run.first for run in runs] == [
        sum(run.count for run in runs[:place]) for place in range(len(runs))
    ]
    held = Counter[str]()
    used = 0
    for run in runs:
        assert bool(run.owners) == (run.state == "used") == (run.refs > 0)
        used += run.count if run.state == "used" else 0
        for owner in run.owners:
            held[owner] += run.count
    assert used == view.kv_used == total - view.kv_free - view.kv_cached
    running = {row.id: row.kv_blocks for row in view.rows if row.state == "running"}
    assert held == Counter(running)
    waiting = [row for row in view.rows if row.state == "waiting"]
    assert all(row.waiting_reason is not None and row.kv_blocks == 0 for row in waiting)
    assert sum(view.waiting_reasons.values()) == len(waiting)


def test_hits_and_evictions_of_the_prefix_cache_are_reported_with_their_step() -> None:
    bench = Bench(kv_blocks=8, prefix_cache=True)
    bench.hear(submit("a", prompt_tokens=13, max_tokens=1))
    bench.until_idle()
    bench.hear(submit("b", prompt_tokens=13, max_tokens=1))
    bench.until_idle()
    first, second = bench.reports
    assert (first.prefix_queries_tokens, first.prefix_hit_tokens, first.kv_cached) == (13, 0, 3)
    assert (second.prefix_queries_tokens, second.prefix_hit_tokens, second.evicted_blocks) == (13, 12, 0)
    bench.hear(submit("c", prompt_tokens=4, max_tokens=27))
    bench.until_idle()
    later = bench.reports[2:]
    assert sum(report.evicted_blocks for report in later) == 3
    assert all(report.kv_used + report.kv_free + report.kv_cached == 8 for report in bench.reports)


def test_tenants_share_no_cached_prefix() -> None:
    bench = Bench(prefix_cache=True)
    for tenant in ("acme", "globex"):
        bench.hear(msgspec.structs.replace(submit(tenant, prompt_tokens=13, max_tokens=1), tenant=tenant))
        bench.until_idle()
    assert [report.prefix_hit_tokens for report in bench.reports] == [0, 0]


def test_every_limit_is_told_and_can_be_set_by_its_name() -> None:
    bench = Bench()
    assert set(LIMIT_NAMES) | {"tenant_default", "tenants"} == set(LimitChanges.__annotations__)
    assert {"call", *LimitChanges.__annotations__} == set(SetLimits.__struct_fields__)
    assert set(LIMIT_NAMES) | {"tenant_default", "tenants"} == {each.name for each in fields(Limits)}
    bench.turns(1)
    before = bench.observations[-1].limits
    assert set(before) == set(LIMIT_NAMES)
    changes = {name: before[name] - 1 for name in LIMIT_NAMES if before[name] > 1}
    share = TenantLimits(kv_share=0.5)
    bench.hear(
        SetLimits(call=3, **changes, tenants={"a": share}, tenant_default=TenantLimits(long_prefills=1))
    )
    bench.turns(2)
    answer = bench.link.of(LimitsSet)[-1]
    assert (answer.old, answer.new) == (before, before | changes)
    seen = bench.observations[-1]
    assert (seen.limits, seen.tenants) == (before | changes, {"a": share})
    assert seen.tenant_default == TenantLimits(long_prefills=1)


def test_one_wrong_limit_of_many_changes_none() -> None:
    bench = Bench()
    before = bench.scheduler.limits
    bench.hear(SetLimits(call=4, max_passes=1, age_steps=0, tenants={"a": TenantLimits(kv_share=2.0)}))
    bench.turns(1)
    answer = bench.link.of(LimitsSet)[-1]
    assert answer.error is not None
    assert "age_steps: 0 given" in answer.error
    assert "kv_share: 2.0 given" in answer.error
    assert bench.scheduler.limits is before


def test_a_deadline_counts_from_when_it_was_sent() -> None:
    bench = Bench()
    first = msgspec.structs.replace(submit("first", max_tokens=900), arrived_s=50.0, deadline_in_s=100.0)
    bench.hear(first)
    bench.turns(2)
    now_s = bench.clock.now_s
    (request,) = bench.scheduler.running.values()
    assert request.deadline_s is not None
    assert now_s < request.deadline_s <= now_s + 100.0
    # Three seconds later on the server's clock another arrives, and its message takes four seconds more.
    sent_s = request.deadline_s - 100.0 + 3.0
    bench.clock.now_s = sent_s + 4.0
    bench.hear(msgspec.structs.replace(submit("second", max_tokens=900), arrived_s=53.0, deadline_in_s=6.0))
    bench.turns(1)
    second = bench.scheduler.get("second")
    assert second is not None
    assert second.deadline_s == pytest.approx(sent_s + 6.0)
    bench.clock.now_s = second.deadline_s
    bench.turns(1)
    (ended,) = [each for report in bench.reports for each in report.finished]
    assert (ended.id, ended.reason, ended.error) == ("second", "error", "deadline_exceeded")


def test_a_request_that_comes_after_its_deadline_ends_in_the_first_step() -> None:
    bench = Bench()
    bench.hear(msgspec.structs.replace(submit("late"), deadline_in_s=-1.0))
    bench.turns(2)
    (ended,) = [each for report in bench.reports for each in report.finished]
    assert (ended.error, ended.generated_tokens) == ("deadline_exceeded", 0)


def test_what_was_swapped_is_told_in_bytes_and_what_was_preempted_by_mode() -> None:
    bench = Bench(kv_blocks=6, host_blocks=6)
    for name in "ab":
        bench.hear(submit(name, prompt_tokens=5, max_tokens=14))
    bench.turns(1)
    most_used = 0
    while bench.scheduler.has_work:
        bench.loop.turn()
        bench.hear(Observe(hz=50.0))
        most_used = max(most_used, bench.observations[-1].host_used)
    bench.turns(2)
    last = bench.observations[-1]
    swaps = sum(each.mode == "swap" for report in bench.reports for each in report.preempted)
    assert swaps > 0
    assert last.preemptions_by_mode == {"swap": swaps, "recompute": last.preemptions - swaps}
    assert last.swapped_out_bytes == sum(report.swapped_out_bytes for report in bench.reports) > 0
    assert last.swapped_in_bytes == sum(report.swapped_in_bytes for report in bench.reports) > 0
    assert (last.host_used, last.host_total) == (0, 6)
    assert most_used > 0
