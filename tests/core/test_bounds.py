"""Tenants' limits and the bound on long prompts, which keep out nobody else. Blocks hold 4 tokens."""

from typing import Any

import pytest
from infer_engine.core.limits import MOST_TENANTS, LimitsError
from infer_engine.protocol import TenantLimits
from simulation.core_modules import Core
from support.scheduling import Rig, admitted, counts


def bounded(core: Core, **limits: Any) -> Rig:
    rig = Rig(core, blocks=64, max_running=8, token_budget=16)
    rig.scheduler.set_limits(long_prefill_tokens=20, **limits)
    return rig


# --- long prompts ------------------------------------------------------------------------------------------


def test_so_many_long_prompts_prefill_at_once_and_short_ones_go_by(core: Core) -> None:
    rig = bounded(core)
    rig.add("long1", prompt=40, max_tokens=1)
    rig.add("long2", prompt=40, max_tokens=1)
    rig.add("short", prompt=4, max_tokens=20)
    # The first long prompt takes what there is, and then leaves half of it to the short one.
    assert counts(rig.step()) == {"long1": 16}
    assert rig.reason("long2") == ("token_budget", None)
    assert counts(rig.step()) == {"long1": 12, "short": 4}
    assert rig.reason("long2") == ("long_prefill", None)
    assert rig.requests["long2"].passed == 0
    assert rig.scheduler.admission.reason_counts() == {"long_prefill": 1}
    rig.step()
    assert rig.ended.keys() == {"long1"}
    assert admitted(rig.step()) == ["long2"]


def test_short_prompts_are_found_behind_any_number_of_long_ones(core: Core) -> None:
    rig = bounded(core)
    for index in range(90):
        rig.add(f"long{index}", prompt=40)
    rig.add("short", prompt=4)
    rig.step()
    assert admitted(rig.step()) == ["short"]
    assert rig.scheduler.admission.reason_counts() == {"long_prefill": 89}


def test_a_flood_of_short_prompts_does_not_stop_a_long_one(core: Core) -> None:
    rig = bounded(core)
    rig.add("long", prompt=60, max_tokens=1)
    steps = 0
    while "long" not in rig.ended:
        for index in range(3):
            rig.add(f"short{steps}-{index}", prompt=8, max_tokens=1)
        rig.step()
        steps += 1
        # At least half of the budget, less what decodes, is its own.
        assert steps <= 8


def test_what_no_short_prompt_took_goes_to_the_long_one(core: Core) -> None:
    rig = bounded(core)
    rig.add("long", prompt=60, max_tokens=1)
    rig.step()
    rig.add("short", prompt=3, max_tokens=1)
    plan = rig.step()
    assert counts(plan) == {"long": 13, "short": 3}
    assert plan.prefill_tokens == 16
    # The last chunk samples, topped up or not.
    rig.add("short2", prompt=3, max_tokens=1)
    rig.run()
    assert rig.requests["long"].output == rig.expected("long", 1)


def test_what_the_cache_has_makes_a_prompt_short(core: Core) -> None:
    rig = Rig(core, blocks=64, token_budget=64, prefix_cache=True)
    system = list(range(500, 540))
    rig.add("first", tokens=system, max_tokens=1)
    rig.run()
    rig.scheduler.set_limits(long_prefill_tokens=20, token_budget=16)
    rig.add("long", prompt=40, max_tokens=1)
    rig.step()
    rig.add("cached", tokens=[*system, 1, 2], max_tokens=1)
    assert admitted(rig.step()) == ["cached"]


def test_a_recompute_is_a_long_prefill_too(core: Core) -> None:
    rig = Rig(core, blocks=16, token_budget=16, host_blocks=0)
    rig.add("a", prompt=24, max_tokens=30)
    victim = rig.add("b", prompt=12, max_tokens=30)
    while not victim.preemptions:
        rig.step()
    rig.scheduler.set_limits(long_prefill_tokens=10)
    assert rig.scheduler.waiting.is_queued_as_long(victim)
    rig.run()
    assert victim.output == rig.expected("b", 30)


def test_a_lower_threshold_counts_for_those_who_wait_already(core: Core) -> None:
    rig = bounded(core, max_long_prefills=1)
    rig.scheduler.set_limits(long_prefill_tokens=100)
    rig.add("runs", prompt=60)
    rig.add("waits", prompt=30)
    rig.step()
    rig.step()
    rig.scheduler.set_limits(long_prefill_tokens=5)
    assert rig.scheduler.waiting.is_queued_as_long(rig.requests["waits"])
    rig.scheduler.set_limits(long_prefill_tokens=50)
    assert not rig.scheduler.waiting.is_queued_as_long(rig.requests["waits"])
    rig.run()


# --- tenants -----------------------------------------------------------------------------------------------


def with_share(core: Core, share: float, **settings: Any) -> Rig:
    rig = Rig(core, **{"blocks": 20, **settings})
    rig.scheduler.set_limits(tenants={"a": TenantLimits(kv_share=share)})
    return rig


def test_a_tenant_at_its_share_waits_and_nobody_behind_it_does(core: Core) -> None:
    rig = with_share(core, 0.25)
    rig.add("a1", prompt=8, tenant="a")
    rig.add("a2", prompt=8, tenant="a")
    rig.add("a3", prompt=1, tenant="a")
    rig.add("b", prompt=20, tenant="b")
    assert admitted(rig.step()) == ["a1", "b"]
    # Within the tenant, what is smaller does not pass.
    assert [rig.reason(name) for name in ("a2", "a3")] == [("tenant", None)] * 2
    assert rig.scheduler.admission.reason_counts() == {"tenant": 2}
    assert rig.requests["a2"].passed == 0
    rig.run()
    assert len(rig.ended) == 4


def test_a_request_beyond_its_tenants_share_runs_alone(core: Core) -> None:
    rig = with_share(core, 0.1)
    rig.add("large", prompt=40, max_tokens=2, tenant="a")
    rig.add("small", prompt=1, max_tokens=2, tenant="a")
    assert admitted(rig.step()) == ["large"]
    rig.run()
    assert set(rig.ended) == {"large", "small"}


def test_what_a_tenants_requests_share_counts_once(core: Core) -> None:
    rig = with_share(core, 0.5, prefix_cache=True)
    system = list(range(900, 924))
    rig.add("a1", tokens=[*system, 1], tenant="a")
    rig.step()
    for index in range(3):
        rig.add(f"a{index + 2}", tokens=[*system, 2 + index], tenant="a")
    assert admitted(rig.step()) == ["a2", "a3", "a4"]
    assert rig.pool.used == 10


def test_a_tenant_at_its_share_makes_no_batch_leave(core: Core) -> None:
    rig = with_share(core, 0.2, max_running=2)
    rig.add("a1", prompt=8, max_tokens=20, tenant="a")
    rig.add("batch", prompt=8, max_tokens=20, tenant="b", tier="batch")
    rig.step()
    rig.add("a2", prompt=8, tenant="a")
    assert rig.step().preempted == []
    rig.add("c", prompt=8, tenant="c")
    assert admitted(rig.step()) == ["c"]


def test_batch_runs_while_only_tenants_limits_keep_interactive_out(core: Core) -> None:
    rig = with_share(core, 0.2)
    rig.add("a1", prompt=8, max_tokens=20, tenant="a")
    rig.add("a2", prompt=8, tenant="a")
    rig.add("batch", prompt=8, tenant="b", tier="batch")
    assert admitted(rig.step()) == ["a1", "batch"]


def test_a_tenants_long_prompts_are_bounded_apart_from_those_of_others(core: Core) -> None:
    rig = bounded(core, max_long_prefills=2, tenant_default=TenantLimits(long_prefills=1))
    for name in ("a1", "a2", "b1"):
        rig.add(name, prompt=30, max_tokens=4, tenant=name[0])
    rig.add("a-short", prompt=2, max_tokens=4, tenant="a")
    rig.step()
    plan = rig.step()
    assert admitted(plan) == ["b1"]
    rig.step()
    assert rig.reason("a2") == ("tenant", None)
    assert {"a1", "b1", "a-short"} <= {*rig.running, *rig.ended}


def test_a_preempted_request_over_its_tenants_share_comes_back_when_it_is_alone(core: Core) -> None:
    rig = with_share(core, 0.3, blocks=8)
    rig.add("a1", prompt=4, max_tokens=14, tenant="a")
    rig.add("b", prompt=8, max_tokens=14, tenant="b")
    rig.add("a2", prompt=4, max_tokens=14, tenant="a")
    rig.run()
    for name in ("a1", "b", "a2"):
        assert rig.requests[name].output == rig.expected(name, 14)


def test_a_fork_is_bounded_by_its_tenants_share(core: Core) -> None:
    rig = with_share(core, 0.15)
    parent = rig.add("a1", prompt=8, tenant="a")
    rig.step()
    child = core.Request(
        id="a2", prompt=[*parent.prompt, 1, 2, 3, 4], max_tokens=4, arrival_s=9.0, sampling=3, tenant="a"
    )
    rig.requests["a2"] = child
    rig.scheduler.fork("a1", child, 9.0)
    assert child.state == "waiting"
    rig.step()
    assert rig.reason("a2") == ("tenant", None)


def test_tenants_limits_change_whole_or_not_at_all(core: Core) -> None:
    rig = Rig(core)
    old, new = rig.scheduler.set_limits(
        tenants={"a": TenantLimits(kv_share=0.5)}, tenant_default=TenantLimits(long_prefills=2)
    )
    assert dict(old.tenants) == {}
    assert new.of_tenant("a") == TenantLimits(kv_share=0.5)
    assert new.of_tenant("b") == TenantLimits(long_prefills=2)
    with pytest.raises(core.LimitsError, match=r"a: kv_share: 1.5 given, above 0 and up to 1 allowed"):
        rig.scheduler.set_limits(max_passes=3, tenants={"a": TenantLimits(kv_share=1.5)})
    assert rig.scheduler.limits is new
    _, newest = rig.scheduler.set_limits(tenants={"a": None, "b": TenantLimits(requests_per_minute=9)})
    assert set(newest.tenants) == {"b"}


def test_so_many_tenants_have_limits_of_their_own() -> None:
    rig = Rig()
    with pytest.raises(LimitsError, match=f"at most {MOST_TENANTS} allowed"):
        rig.scheduler.set_limits(tenants={f"t{index}": TenantLimits() for index in range(MOST_TENANTS + 1)})
