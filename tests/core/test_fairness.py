"""Tenants take turns by what they were served. Blocks hold 4 tokens."""

import pytest
from infer_engine.core.line import MOST_IDLE, Line
from infer_engine.core.observe import rows
from infer_engine.core.request import Request
from simulation.core_modules import Core
from support.scheduling import Rig, admitted


def test_a_flood_does_not_delay_the_next_request_of_another_tenant(core: Core) -> None:
    rig = Rig(core, max_running=2, max_waiting=20_000)
    for index in range(10_000):
        rig.add(f"flood{index}", max_tokens=3, tenant="flood")
    rig.step()
    rig.add("rare", tenant="rare")
    # Nothing but those who run is before it.
    while (plan := rig.step()).step < 10 and not admitted(plan):
        assert rig.waiting[0] == "rare"
    assert admitted(plan)[0] == "rare"


def test_two_floods_share_by_tokens_and_not_by_requests(core: Core) -> None:
    rig = Rig(core, blocks=64, max_running=1, max_waiting=1000)
    for index in range(60):
        rig.add(f"large{index}", prompt=40, max_tokens=8, tenant="large")
        rig.add(f"small{index}", prompt=4, max_tokens=8, tenant="small")
    ended: list[str] = []
    while len(ended) < 40:
        ended += admitted(rig.step())
    served = {
        tenant: sum(
            request.total_tokens
            for request in rig.requests.values()
            if request.tenant == tenant and request.id in rig.ended
        )
        for tenant in ("large", "small")
    }
    # Neither is ahead by more than one of the larger requests.
    assert abs(served["large"] - served["small"]) <= 48
    assert sum(name.startswith("small") for name in ended) > 3 * sum(
        name.startswith("large") for name in ended
    )


def test_absence_is_no_credit(core: Core) -> None:
    rig = Rig(core, max_running=1, max_waiting=1000)
    for index in range(30):
        rig.add(f"a{index}", max_tokens=4, tenant="a")
    while len(rig.waiting) > 20:
        rig.step()
    for index in range(10):
        rig.add(f"b{index}", max_tokens=4, tenant="b")
    order: list[str] = []
    while len(order) < 10:
        order += admitted(rig.step())
    assert order[0].startswith("b")
    assert sum(name.startswith("b") for name in order) in (5, 6), "b caught up with what it had not asked for"


def test_within_a_tenant_it_is_first_come_first_served(core: Core) -> None:
    rig = Rig(core, max_running=1)
    rig.add("late", arrival_s=9.0, tenant="a")
    rig.add("early", arrival_s=1.0, tenant="a")
    rig.add("middle", arrival_s=5.0, prompt=6, tenant="a")
    assert rig.waiting == ["early", "middle", "late"]


def test_priority_and_tier_go_before_fairness(core: Core) -> None:
    rig = Rig(core, max_running=1)
    rig.add("runs", max_tokens=2, tenant="a")
    rig.step()
    rig.add("b", tenant="b")
    rig.add("batch", tenant="c", tier="batch")
    rig.add("urgent", tenant="a", priority=1)
    assert rig.waiting == ["urgent", "b", "batch"]


def test_what_the_cache_had_is_not_charged(core: Core) -> None:
    rig = Rig(core, blocks=32, max_running=1, prefix_cache=True)
    prompt = list(range(100, 140))
    rig.add("first", tokens=prompt, max_tokens=1, tenant="a", cache_salt="a")
    rig.run()
    rig.add("again", tokens=prompt, max_tokens=1, tenant="a", cache_salt="a")
    rig.add("other", prompt=8, max_tokens=1, tenant="b")
    served = rig.requests["again"].account.served
    rig.run()
    # The newest token is computed always, and one is generated.
    assert rig.requests["again"].account.served == served + 2


def test_recomputing_is_not_charged_to_who_was_preempted(core: Core) -> None:
    rig = Rig(core, blocks=5)
    rig.add("a", prompt=4, max_tokens=12, tenant="a")
    victim = rig.add("b", prompt=4, max_tokens=12, tenant="b")
    rig.run()
    assert victim.preemptions > 0
    assert victim.account.served == 4 + 12


def test_the_rows_stand_in_the_order_in_which_they_are_admitted(core: Core) -> None:
    rig = Rig(core, blocks=64, max_running=1, max_waiting=1000)
    for index in range(12):
        rig.add(f"a{index}", prompt=4 + index % 3, max_tokens=1, tenant="a")
        rig.add(f"b{index}", prompt=9 - index % 5, max_tokens=1, tenant="b" if index % 4 else "c")
    order: list[str] = []
    while rig.scheduler.waiting:
        (first,) = [row.id for row in rows(rig.scheduler, 1) if row.state == "waiting"][:1]
        assert admitted(rig.step()) == [first]
        order.append(first)
    assert len(order) == 24


def test_several_are_admitted_in_one_step_in_the_order_that_was_shown(core: Core) -> None:
    rig = Rig(core, blocks=64, max_running=6)
    for index in range(6):
        rig.add(f"a{index}", prompt=8, tenant="a")
    for index in range(6):
        rig.add(f"b{index}", prompt=4, tenant="b")
    shown = rig.waiting[:6]
    assert shown == ["a0", "b0", "b1", "a1", "b2", "b3"]
    assert admitted(rig.step()) == shown


def add(line: Line, name: str, tenant: str, arrival_s: float = 0.0) -> Request:
    request = Request(id=name, prompt=[1], max_tokens=1, arrival_s=arrival_s, tenant=tenant)
    request.account = line.account(tenant)
    line.add(request, (arrival_s, len(name)), long=False)
    return request


def test_tenants_that_come_and_go_leave_nothing_behind_that_grows() -> None:
    line = Line(fair=True)
    add(line, "stays", "stays")
    for index in range(4 * MOST_IDLE):
        request = add(line, f"q{index}", f"tenant{index}", arrival_s=float(index))
        stream = line._streams[request.tenant, False]
        line.remove(request, stream)
    assert len(line._accounts) <= 2 * MOST_IDLE + 2
    assert sum(map(len, line._heaps)) < 100
    assert [request.id for request in line.order()] == ["stays"]


@pytest.mark.parametrize("waiting", [100, 3000])
def test_the_next_is_found_without_looking_at_those_behind_it(waiting: int) -> None:
    line = Line(fair=True)
    for index in range(waiting):
        add(line, f"q{index}", f"tenant{index % 1000}", arrival_s=float(index))
    asked: list[str] = []

    class Counting:
        def bars(self, tenant: str, *, long: bool) -> bool:
            asked.append(tenant)
            return False

        def passes_over(self, request: Request) -> bool:
            return False

    order = line.order(Counting())
    assert [next(order).id for _ in range(3)] == ["q0", "q1", "q2"]
    assert len(asked) == 3


def test_who_passes_does_not_move_the_line_for_newcomers(core: Core) -> None:
    rig = Rig(core, blocks=12)
    rig.add("runs", prompt=20, max_tokens=30, tenant="x")
    rig.step()
    rig.add("head", prompt=28, tenant="a")
    rig.add("passes", max_tokens=30, tenant="c").account.served = 50
    rig.add("waits", prompt=28, tenant="d").account.served = 20
    assert admitted(rig.step()) == ["passes"]
    rig.add("newcomer", prompt=20, tenant="b")
    assert rig.waiting == ["head", "newcomer", "waits"]


def test_the_rows_go_on_behind_the_barred_as_without_them(core: Core) -> None:
    rig = Rig(core, blocks=128, max_running=2, token_budget=16)
    rig.scheduler.set_limits(long_prefill_tokens=20)
    rig.add("runs", prompt=200, tenant="x")
    rig.step()
    rig.add("long", prompt=40, tenant="a")
    for index in range(3):
        rig.add(f"b{index}", max_tokens=1, tenant="b")
        rig.add(f"a{index}", max_tokens=1, tenant="a")
    rig.step()
    assert rig.reason("long") == ("long_prefill", None)
    order: list[str] = []
    while len(order) < 5:
        shown = [row.id for row in rows(rig.scheduler) if row.state == "waiting"]
        assert shown[0] == "long"
        order += admitted(rig.step())
        assert order[-1] == shown[1]


def test_a_barred_tenant_alone_in_its_line_is_not_gone_through() -> None:
    line = Line(fair=True)
    for index in range(500):
        add(line, f"q{index}", "a", arrival_s=float(index))
    asked = 0

    class Barring:
        def bars(self, tenant: str, *, long: bool) -> bool:
            nonlocal asked
            asked += 1
            return True

        def passes_over(self, request: Request) -> bool:
            return True

    assert list(line.order(Barring())) == []
    assert asked == 1
    assert len(list(line.order())) == 500
