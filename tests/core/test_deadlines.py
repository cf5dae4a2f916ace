"""A request with a deadline ends by it, wherever it is. The rig's clock goes on by 1 s a step and a
request."""

from infer_engine.core.deadlines import MOST_ENDED
from simulation.core_modules import Core
from support.scheduling import Rig, counts


def test_who_runs_ends_with_the_tokens_so_far_and_gives_its_blocks_to_that_very_step(core: Core) -> None:
    rig = Rig(core, blocks=4)
    request = rig.add("a", prompt=8, max_tokens=8, deadline_s=4.0)
    rig.add("b", prompt=8, max_tokens=2)
    rig.step()
    assert (rig.running, rig.waiting) == (["a"], ["b"])
    plan = rig.step()
    assert [(finish.id, finish.reason, finish.error) for finish in plan.finished] == [
        ("a", "error", "deadline_exceeded")
    ]
    assert (plan.finished[0].freed_blocks, plan.finished[0].generated_tokens) == (3, 1)
    assert request.output == rig.expected("a", 1)
    assert counts(plan) == {"b": 8}


def test_who_waits_ends_too_and_others_go_on(core: Core) -> None:
    rig = Rig(core, max_running=1)
    first = rig.add("a", max_tokens=6)
    rig.add("b", deadline_s=5.0)
    rig.add("c", max_tokens=2, deadline_s=1000.0)
    rig.run()
    assert {name: rig.ended[name].error for name in "abc"} == {
        "a": None,
        "b": "deadline_exceeded",
        "c": None,
    }
    assert first.output == rig.expected("a", 6)


def test_one_that_comes_too_late_computes_nothing(core: Core) -> None:
    rig = Rig(core)
    rig.add("a", deadline_s=0.0)
    plan = rig.step()
    assert (plan.chunks, plan.admitted, rig.ended["a"].error) == ([], [], "deadline_exceeded")
    assert not rig.scheduler.has_work


def test_a_deadline_while_swapped_out_leaves_nothing_on_the_host(core: Core) -> None:
    rig = Rig(core, blocks=6, host_blocks=8)
    rig.add("a", max_tokens=20)
    rig.add("b", max_tokens=20, deadline_s=13.0)
    while not (preempted := rig.step().preempted):
        pass
    assert [(each.id, each.mode) for each in preempted] == [("b", "swap")]
    assert (rig.now_s, len(rig.host.free_list)) == (12.0, 5)
    rig.step()
    assert rig.ended["b"].error == "deadline_exceeded"
    assert len(rig.host.free_list) == 8


def test_who_comes_back_under_the_same_id_is_judged_by_its_own_deadline(core: Core) -> None:
    rig = Rig(core)
    rig.add("a", max_tokens=6, deadline_s=3.0)
    rig.scheduler.close_admission()
    rig.scheduler.open_admission()
    again = rig.add("a", max_tokens=6)
    rig.run()
    assert again.output == rig.expected("a", 6)


def test_the_deadlines_of_those_that_ended_do_not_pile_up(core: Core) -> None:
    rig = Rig(core)
    for number in range(10 * MOST_ENDED):
        rig.add(f"r{number}", deadline_s=1e9)
        rig.scheduler.abort(f"r{number}")
    assert len(rig.scheduler._deadlines) <= MOST_ENDED + 3
