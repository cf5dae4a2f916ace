"""Choices that share their prompt: whatever becomes of the first, each is computed and ends once."""

import msgspec
from infer_engine.replica.messages import Abort, Refused, SetAdmission, StepReport, Submit, Withdrawn
from infer_engine.runner.step_output import StepOutput
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

PROMPT = 10


class Bench:
    def __init__(self, token_budget: int = 64, max_running: int = 8, max_waiting: int = 100) -> None:
        clock = Clock()
        self.link = ScriptedLink(clock)
        self.runner = ScriptedRunner(runner_info(32))
        self.scheduler = make_scheduler(
            self.runner.info, token_budget=token_budget, max_running=max_running, max_waiting=max_waiting
        )
        self.loop = make_loop(self.runner, self.scheduler, self.link, clock)

    def ask(self, *messages: object) -> None:
        self.link.inbound.extend(messages)  # type: ignore[arg-type]
        self.loop.turn()

    def run(self) -> None:
        for _ in range(100):
            if not self.scheduler.has_work:
                return
            self.loop.turn()
        raise AssertionError("never done")

    @property
    def reports(self) -> list[StepReport]:
        return self.link.of(StepReport)

    def tokens(self, request: str) -> list[int]:
        return [token.token for report in self.reports for token in report.tokens if token.id == request]

    def ends(self) -> dict[str, str]:
        """Fails when one ended twice."""
        ends = [(end.id, end.reason) for report in self.reports for end in report.finished]
        assert len(ends) == len(dict(ends))
        return dict(ends)


def choices(count: int, max_tokens: int = 4, parent: str = "c0") -> list[Submit]:
    first = submit(parent, PROMPT, max_tokens)
    return [
        first,
        *(msgspec.structs.replace(first, id=f"c{at}", fork_of=parent) for at in range(1, count)),
    ]


EXPECTED = [FIRST_TOKEN + PROMPT + at for at in range(4)]


def test_the_prompt_is_computed_once_and_its_last_token_by_each() -> None:
    bench = Bench()
    bench.ask(*choices(4))
    assert [report.prefill_tokens for report in bench.reports] == [PROMPT]
    assert bench.scheduler.counters.forks == 3
    shared = [request.block_table[:2] for request in bench.scheduler.running.values()]
    assert len(shared) == 4
    assert all(table == shared[0] for table in shared)
    bench.run()
    assert sum(report.prefill_tokens for report in bench.reports) == PROMPT
    assert bench.scheduler.counters.copied_blocks == 3
    assert [bench.tokens(f"c{at}") for at in range(4)] == [EXPECTED] * 4
    assert bench.ends() == dict.fromkeys(["c0", "c1", "c2", "c3"], "length")
    assert {each.id for report in bench.reports for each in report.admitted} == {"c0", "c1", "c2", "c3"}


def test_while_the_prompt_is_computed_they_wait_behind_it() -> None:
    bench = Bench(token_budget=4, max_running=4)
    bench.ask(*choices(3))
    report = bench.reports[-1]
    assert (report.running, report.waiting) == (1, 2)
    observation = bench.loop._account.observation(0.0, 0, blocks=False)  # pyright: ignore[reportPrivateUsage]
    assert observation.waiting_reasons == {"behind": 2}
    assert [(row.id, row.state, row.behind) for row in observation.rows[1:]] == [
        ("c1", "waiting", "c0"),
        ("c2", "waiting", "c0"),
    ]
    bench.run()
    assert [bench.tokens(f"c{at}") for at in range(3)] == [EXPECTED] * 3


def test_the_first_may_end_with_its_first_token() -> None:
    bench = Bench()
    bench.ask(*choices(3, max_tokens=1))
    bench.run()
    assert bench.ends() == dict.fromkeys(["c0", "c1", "c2"], "length")


def test_the_first_may_be_aborted_before_its_prompt_is_computed() -> None:
    bench = Bench(token_budget=4, max_running=4)
    bench.ask(*choices(3))
    bench.ask(Abort(id="c0"))
    bench.run()
    assert bench.ends() == {"c0": "cancelled", "c1": "length", "c2": "length"}
    assert [bench.tokens(f"c{at}") for at in range(3)] == [[], EXPECTED, EXPECTED]


def test_one_may_be_aborted_while_it_waits_and_one_while_it_shares() -> None:
    bench = Bench(token_budget=4, max_running=4)
    bench.ask(*choices(3), Abort(id="c1", reason="stop"))
    assert bench.ends() == {"c1": "stop"}
    while len(bench.scheduler.running) < 2:
        bench.loop.turn()
    bench.ask(Abort(id="c2"))
    bench.run()
    assert bench.ends() == {"c0": "length", "c1": "stop", "c2": "cancelled"}
    assert bench.tokens("c0") == EXPECTED


def test_a_first_that_is_refused_leaves_requests_like_any_other() -> None:
    bench = Bench(max_waiting=1)
    bench.ask(submit("other", 4, 2))
    bench.scheduler.set_limits(max_running=1)
    bench.ask(submit("queued", 4, 2), *choices(2))
    assert [refused.id for refused in bench.link.of(Refused)] == ["c0", "c1"]
    bench.run()
    assert bench.ends().keys() == {"other", "queued"}


def test_closing_admission_hands_back_those_that_wait_for_their_prompt() -> None:
    bench = Bench(token_budget=4, max_running=4)
    bench.ask(*choices(3))
    bench.ask(SetAdmission(open=False))
    assert [withdrawn.ids for withdrawn in bench.link.of(Withdrawn)] == [["c1", "c2"]]
    # One that comes now is refused, not kept.
    bench.ask(choices(4)[3])
    assert [refused.id for refused in bench.link.of(Refused)] == ["c3"]
    bench.run()
    assert bench.ends() == {"c0": "length"}


def test_a_first_that_is_preempted_takes_none_with_it() -> None:
    bench = Bench()
    bench.ask(submit("old", 60, 40))
    bench.ask(*choices(4, max_tokens=30))
    bench.run()
    assert bench.ends() == dict.fromkeys(["old", "c0", "c1", "c2", "c3"], "length")
    assert bench.scheduler.counters.preemptions > 0
    assert all(len(bench.tokens(f"c{at}")) == 30 for at in range(4))


def test_who_cannot_go_on_ends_without_a_token() -> None:
    bench = Bench()
    execute = bench.runner.execute

    def fail_one(plan: object) -> StepOutput:
        output = execute(plan)  # type: ignore[arg-type]
        if "c1" in output.tokens:
            output.errors["c1"] = "constraint_failed"
        return output

    bench.runner.execute = fail_one  # type: ignore[method-assign]
    bench.ask(*choices(3))
    bench.run()
    assert bench.ends() == {"c0": "length", "c1": "error", "c2": "length"}
    assert [end.error for report in bench.reports for end in report.finished if end.id == "c1"] == [
        "constraint_failed"
    ]
    assert (bench.tokens("c1"), bench.tokens("c2")) == ([], EXPECTED)
    assert bench.loop.invariant_violations == 0
