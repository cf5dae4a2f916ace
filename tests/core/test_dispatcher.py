import random

from hypothesis import example, given
from hypothesis import strategies as st
from infer_engine.core.dispatcher import Dispatcher
from infer_engine.core.limits import Limits
from infer_engine.core.plan import Plan
from infer_engine.core.reported_pool import ReportedPool
from infer_engine.core.request import Request
from infer_engine.protocol import Tier


def dispatcher(blocks: int = 20, most: int = 4, admit: int = 18, batch: int = 13) -> Dispatcher:
    limits = Limits(admit_limit=admit, batch_limit=batch, max_running=most, token_budget=2048)
    return Dispatcher(ReportedPool(blocks, 16), limits, 4096)


def request(id: str, tokens: int = 16, *, tier: Tier = "interactive", most: int = 50) -> Request:
    return Request(id=id, prompt=list(range(tokens)), max_tokens=most, arrival_s=0.0, tier=tier)


def admitted(of: Dispatcher) -> list[str]:
    return [each.id for each in of.step(0.0).admitted]


def test_all_who_fit_go_at_once_however_long_their_prompts_are() -> None:
    of = dispatcher(blocks=2000, admit=1800)
    for number in range(3):
        of.add(request(f"a{number}", 4000, most=9), 0.0)
    assert admitted(of) == ["a0"]  # a long one at a time, as in a replica of ours
    of.token(of.running["a0"], 5, Plan(step=0))
    assert admitted(of) == ["a1"]


def test_the_rest_wait_and_say_why() -> None:
    of = dispatcher(most=2)
    for number in range(3):
        of.add(request(f"a{number}"), 0.0)
    assert admitted(of) == ["a0", "a1"]
    assert of.admission.reason_counts() == {"slots": 1}
    of.set_limits(max_running=9)
    of.add(request("large", 16 * 12), 0.0)
    assert admitted(of) == ["a2"]
    assert of.admission.reason_counts() == {"headroom": 1}


def test_others_use_of_the_server_counts_for_the_marks() -> None:
    of = dispatcher()
    pool = of.pool
    assert isinstance(pool, ReportedPool)
    pool.report(17, None, 0.0)
    of.add(request("a"), 0.0)
    assert admitted(of) == ["a"]  # where nothing of ours runs one always may
    of.add(request("b"), 0.0)
    assert not admitted(of)
    pool.report(4, None, 3.0)
    assert admitted(of) == ["b"]


def test_batch_leaves_for_interactive_and_comes_back() -> None:
    of = dispatcher(most=2)
    for number in range(2):
        of.add(request(f"b{number}", tier="batch"), 0.0)
    assert admitted(of) == ["b0", "b1"]
    of.add(request("a"), 0.0)
    plan = of.step(1.0)
    assert [each.id for each in plan.preempted] == ["b1"]
    assert [each.id for each in plan.admitted] == ["a"]
    end = of.ended(of.running["a"], "stop")
    assert end is not None
    assert end.generated_tokens == 0
    assert admitted(of) == ["b1"]


def test_a_choice_of_a_running_request_has_blocks_of_its_own() -> None:
    of = dispatcher()
    of.add(request("a", 40), 0.0)
    of.step(0.0)
    of.token(of.running["a"], 5, Plan(step=0))
    of.fork("a", request("b", 40), 0.0)
    plan = of.step(0.0)
    assert [each.id for each in plan.admitted] == ["b"]
    assert not plan.forked
    for id in ("a", "b"):
        assert of.abort(id) is not None
    assert of.pool.used == 0


def test_a_deadline_passes_though_nobody_says_anything() -> None:
    of = dispatcher()
    late = request("a")
    late.deadline_s = 5.0
    of.add(late, 0.0)
    of.step(0.0)
    assert not of.is_overdue(4.0)
    assert of.is_overdue(5.0)
    assert [each.error for each in of.step(5.0).finished] == ["deadline_exceeded"]
    assert not of.is_overdue(6.0)


def test_nobody_goes_while_the_server_takes_nothing() -> None:
    of = dispatcher()
    of.add(request("a"), 0.0)
    of.held_back = True
    assert not admitted(of)
    assert of.admission.reason_counts() == {"slots": 1}
    of.held_back = False
    assert admitted(of) == ["a"]


def test_tokens_are_counted_as_they_come_and_end_a_request() -> None:
    of = dispatcher()
    stops = request("a", 15, most=50)
    stops.stop_token_ids = frozenset({7})
    of.add(stops, 0.0)
    of.step(0.0)
    told = Plan(step=0)
    assert of.token(stops, 5, told) is None
    assert of.token(stops, 6, told) is None
    assert (told.prefill_tokens, told.decode_tokens) == (15, 1)
    assert len(stops.block_table) == 2
    assert not stops.is_prefilling
    end = of.token(stops, 7, told)
    assert end is not None
    assert (end.reason, end.generated_tokens, end.freed_blocks) == ("stop", 3, 2)
    assert of.ended(stops, "length") is None
    assert not of.has_work


def test_batch_that_waited_long_goes_first_however_often_somebody_spoke() -> None:
    of = dispatcher(most=1)
    of.set_limits(age_steps=100)
    of.add(request("runs"), 0.0)
    assert admitted(of) == ["runs"]
    of.add(request("old", tier="batch"), 0.0)
    of.add(request("new"), 1.0)
    for _ in range(500):
        of.step(4.0)
    assert [each.id for each in of.admission.in_order()] == ["new", "old"]
    of.step(6.0)
    assert [each.id for each in of.admission.in_order()] == ["old", "new"]


def test_prompts_that_the_server_has_not_computed_are_promised_their_room() -> None:
    of = dispatcher(blocks=20, admit=18)
    pool = of.pool
    assert isinstance(pool, ReportedPool)
    for number in range(2):
        of.add(request(f"a{number}", 16 * 7), 0.0)
    assert admitted(of) == ["a0", "a1"]
    pool.report(1, None, 9.0)
    pool.report(1, None, 99.0)  # it counts what it has computed: nothing yet
    of.add(request("b", 16 * 3), 99.0)
    assert not of.step(99.0).admitted
    assert of.admission.reason_counts() == {"headroom": 1}
    for each in list(of.running.values()):
        of.token(each, 5, Plan(step=0))
    assert [each.id for each in of.step(99.0).admitted] == ["b"]


def test_room_that_was_promised_is_given_back_by_who_leaves() -> None:
    of = dispatcher(most=1)
    pool = of.pool
    assert isinstance(pool, ReportedPool)
    for id in ("a", "waits"):  # who waits is why room is promised
        of.add(request(id, 48), 0.0)
    assert admitted(of) == ["a"]
    of.step(1.0)
    pool.report(3, None, 1.0)
    for id in ("waits", "a"):
        of.release(id)
    pool.report(0, None, 9.0)
    assert pool.used == 0  # at once, whether or not there is another round
    of.add(request("b", 48), 9.0)
    of.step(9.0)
    of.token(of.running["b"], 5, Plan(step=0))
    of.step(9.0)
    pool.report(0, None, 20.0)
    pool.report(0, None, 30.0)
    assert pool.used == 0  # what is computed, the server counts


@example(seed=63, choices=[0, 2, 0, 5, 3, 2, 2, 0, 0, 0])  # blocks that batch gives up are not free at once
@given(seed=st.integers(0, 99), choices=st.lists(st.integers(0, 6), max_size=40))
def test_everybody_is_somewhere_and_no_block_is_lost(seed: int, choices: list[int]) -> None:
    draw = random.Random(seed)
    of = dispatcher()
    pool = of.pool
    assert isinstance(pool, ReportedPool)
    alive: set[str] = set()
    now_s = 0.0
    for number, choice in enumerate(choices):
        now_s += 0.5
        running = list(of.running.values())
        if choice < 3:
            tier: Tier = "batch" if choice == 2 else "interactive"
            of.add(request(f"q{number}", draw.randrange(1, 90), tier=tier, most=draw.randrange(1, 5)), now_s)
            alive.add(f"q{number}")
        elif choice == 3 and running:
            end = of.token(draw.choice(running), 3, Plan(step=0))
            alive.discard(end.id if end is not None else "")
        elif choice == 4 and alive:
            gone = draw.choice(sorted(alive))
            assert of.abort(gone) is not None
            alive.discard(gone)
        elif choice == 5:
            pool.report(draw.randrange(25), None, now_s)
        elif choice == 6:
            of.set_shed(draw.random() < 0.5)
        of.step(now_s)
        tables = [block for each in of.running.values() for block in each.block_table]
        assert len(tables) == len(set(tables)) == pool.ours
        assert alive == {*of.running, *(each.id for each in of.waiting)}
        assert len(of.running) <= of.limits.max_running
        assert all(each.block_table for each in of.running.values())
    while of.waiting or of.running:
        of.set_shed(False)
        now_s += 3.0
        pool.report(0, None, now_s)
        of.step(now_s)
        assert of.running, "who waits alone gets in"
        for each in list(of.running.values()):
            of.token(each, 3, Plan(step=0))
    assert pool.ours == 0
