"""What a tenant may use: at the door, and told to every replica."""

from dataclasses import replace
from typing import Any

import pytest
from infer_engine.fleet.generation import Generation, Refusal
from infer_engine.protocol import ChangeTenant, Effect, TenantLimits, TenantStatus
from support.fleets import Bench, finished, running_fleet, spec, until


def ask(bench: Bench, tenant: str, prompt_tokens: int = 4, **more: Any) -> Generation:
    return bench.fleet.submit(replace(spec(prompt_tokens, 2), tenant=tenant, **more))


def status(bench: Bench, tenant: str) -> TenantStatus:
    return next(each for each in bench.fleet.tenants.now().tenants if each.name == tenant)


async def limit(bench: Bench, tenant: str, **limits: Any) -> None:
    await bench.fleet.tenants.change(tenant, ChangeTenant(limits=limits))


def predict(bench: Bench, tenant: str, **limits: Any) -> Effect:
    return bench.fleet.tenants.predict(tenant, ChangeTenant(limits=limits))


async def test_too_many_in_a_minute_are_refused_with_when_to_come_back() -> None:
    async with running_fleet() as bench:
        await limit(bench, "flood", requests_per_minute=3)
        taken = [ask(bench, "flood") for _ in range(3)]
        with pytest.raises(Refusal) as refused:
            ask(bench, "flood")
        problem = refused.value.problem
        assert (problem.status, problem.code) == (429, "tenant_rate")
        assert problem.numbers == {"requests_last_minute": 3, "allowed": 3}
        assert refused.value.retry_after_s is not None
        others = [ask(bench, "quiet") for _ in range(5)]
        assert (status(bench, "flood").refused, status(bench, "quiet").refused) == (1, 0)
        assert bench.events("reject")[-1].reason == "tenant_rate"
        bench.ahead_s += refused.value.retry_after_s + 0.1
        await finished(*taken, *others, ask(bench, "flood"))


async def test_a_prompt_may_be_so_long_and_a_tier_is_forced() -> None:
    async with running_fleet() as bench:
        await limit(bench, "a", prompt_tokens=5, tier="batch")
        with pytest.raises(Refusal) as refused:
            ask(bench, "a", 6)
        assert (refused.value.problem.status, refused.value.problem.field) == (400, "prompt")
        assert refused.value.problem.numbers == {"prompt_tokens": 6, "allowed": 5}
        generation = ask(bench, "a", 5)
        assert generation.spec.tier == "batch"
        assert ask(bench, "b", 6).spec.tier == "interactive"
        assert ask(bench, "a", 6, synthetic=True).spec.tier == "interactive", "guard rails are its limits"
        await limit(bench, "a", tier=None)
        assert ask(bench, "a", 5).spec.tier == "interactive"


async def test_everyone_else_and_going_back_to_the_default() -> None:
    async with running_fleet() as bench:
        await limit(bench, "*", prompt_tokens=5)
        await limit(bench, "named", requests_per_minute=100)
        assert status(bench, "named").limits == TenantLimits(requests_per_minute=100, prompt_tokens=5)
        await limit(bench, "named", prompt_tokens=None)
        ask(bench, "named", 8)
        with pytest.raises(Refusal):
            ask(bench, "other", 8)
        before, after = await bench.fleet.tenants.change("named", ChangeTenant(forget=True))
        assert (before, after) == (TenantLimits(requests_per_minute=100), None)
        with pytest.raises(Refusal):
            ask(bench, "named", 8)


async def test_replicas_hear_of_it_and_hear_of_it_again_after_a_restart() -> None:
    async with running_fleet() as bench:
        await limit(bench, "a", kv_share=0.25)
        await limit(bench, "b", long_prefills=1)

        def told(replica: str) -> dict[str, TenantLimits]:
            loop = bench.launcher.now(replica).loop
            return {} if loop is None else dict(loop.scheduler.limits.tenants)

        wanted = {"a": TenantLimits(kv_share=0.25), "b": TenantLimits(long_prefills=1)}
        assert told("r0") == told("r1") == wanted
        bench.launcher.now("r0").kill()
        await until(lambda: len(bench.launcher.lives["r0"]) == 2)
        await until(lambda: told("r0") == wanted, "the next life has them too")
        await bench.fleet.tenants.change("a", ChangeTenant(forget=True))
        assert told("r1") == {"b": TenantLimits(long_prefills=1)}


async def test_the_prediction_speaks_of_those_who_are_here() -> None:
    async with running_fleet(held=True) as bench:
        for _ in range(4):
            ask(bench, "flood", 8)
        effect = predict(bench, "flood", requests_per_minute=1, kv_share=0.01, tier="batch")
        assert effect.numbers["waiting"] == 4
        assert "flood: requests_per_minute no limit → 1" in effect.summary
        assert any("about 3 a minute will be refused" in line for line in effect.summary)
        assert any("new requests are batch" in line for line in effect.summary)
        assert predict(bench, "nobody", kv_share=0.5).warnings == ["nobody has no requests now"]
        assert bench.fleet.tenants.now().default == TenantLimits(), "a prediction changes nothing"


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"kv_share": 0}, "kv_share"),
        ({"kv_share": 1.5}, "kv_share"),
        ({"kv_share": float("nan")}, "kv_share"),
        ({"requests_per_minute": 0}, "requests_per_minute"),
        ({"requests_per_minute": 1.5}, "requests_per_minute"),
        ({"prompt_tokens": -1}, "prompt_tokens"),
        ({"long_prefills": "two"}, "long_prefills"),
        ({"tier": "urgent"}, "tier"),
        ({"speed\x1b[2J": 1}, "speed\\x1b[2J"),
    ],
)
async def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(
    limits: dict[str, Any], field: str
) -> None:
    async with running_fleet(replicas=1) as bench:
        with pytest.raises(Refusal) as refused:
            await limit(bench, "a", **limits)
        assert (refused.value.problem.status, refused.value.problem.field) == (422, field)
        assert not [each for each in bench.fleet.tenants.now().tenants if each.own]
