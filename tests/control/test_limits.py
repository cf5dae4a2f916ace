"""Live limits and tenants through the control API: shown, predicted, changed whole, put back."""

import asyncio
from typing import Any

import msgspec
from infer_engine.protocol import CommandResult, LiveLimits, Operation, TenantLimits, Tenants
from support.asking import command, complete, ended, refused
from support.server import EngineServer


async def limits(server: EngineServer, replica: str) -> dict[str, int]:
    async with server.async_control() as client:
        response = await client.get("/control/v1/limits")
    return msgspec.json.decode(response.content, type=LiveLimits).replicas[replica]


async def tenants(server: EngineServer) -> Tenants:
    async with server.async_control() as client:
        response = await client.get("/control/v1/tenants")
    return msgspec.json.decode(response.content, type=Tenants)


async def test_limits_change_whole_and_go_back(server: EngineServer) -> None:
    before = await limits(server, "r0")
    dry = await command(server, "/limits", limits={"token_budget": 64}, dry_run=True)
    assert dry.operation is None
    assert f"r0: token_budget {before['token_budget']} → 64" in dry.effect.summary
    assert await limits(server, "r0") == before

    wanted = {"token_budget": 64, "max_passes": 3}
    done = await command(server, "/limits", limits=wanted, revert_after_s=1, actor="ann", reason="try")
    assert done.operation is not None
    assert done.operation.params["limits"]["r0"] == {name: [before[name], wanted[name]] for name in wanted}
    assert await limits(server, "r0") == {**before, **wanted}
    async with server.async_control() as client:
        revert = done.operation.params["revert_operation"]
        response = await client.get(f"/control/v1/operations/{revert}")
    await ended(server, msgspec.json.decode(response.content, type=type(done.operation)))
    assert await limits(server, "r0") == before

    problem = await refused(server, "/limits", limits={"max_waiting": 5, "max_running": 0})
    assert (problem.status, problem.field) == (422, "max_running")
    assert await limits(server, "r0") == before
    assert (await refused(server, "/limits", limits={"token_budget": "many"})).status == 422


async def test_a_tenant_is_limited_at_the_door_alone_and_is_shown(server: EngineServer) -> None:
    path = "/tenants/flood"
    await command(server, path, limits={"requests_per_minute": 2, "kv_share": 0.5})
    try:
        async with server.async_gateway() as client:
            body = {"model": "tiny", "prompt": "hi", "max_tokens": 1, "ignore_eos": True}
            codes: list[int] = []
            for _ in range(4):
                answer = await client.post("/v1/completions", json=body, headers={"x-infer-tenant": "flood"})
                codes.append(answer.status_code)
            assert codes == [200, 200, 429, 429]
            assert answer.json()["error"]["code"] == "tenant_rate"
            assert int(answer.headers["retry-after"]) >= 1
        assert (await complete(server, 1)).status_code == 200
        shown = next(each for each in (await tenants(server)).tenants if each.name == "flood")
        assert shown.limits == TenantLimits(requests_per_minute=2, kv_share=0.5)
        assert (shown.own, shown.requests_last_minute, shown.refused) == (True, 2, 2)
    finally:
        await command(server, path, forget=True)
    assert not [each for each in (await tenants(server)).tenants if each.own]


async def test_what_does_not_fit_is_refused(server: EngineServer) -> None:
    assert (await refused(server, "/tenants/Not%20a%20name", limits={"kv_share": 0.5})).field == "tenant"
    assert (await refused(server, "/tenants/a", limits={"kv_share": 2})).field == "kv_share"
    assert (await refused(server, "/tenants/a")).field == "limits"
    assert (await refused(server, "/tenants/a", limits={"kv_share": 0.5}, revert_after_s=0)).status == 422


async def test_of_two_changes_at_once_the_later_is_not_undone_by_the_earlier(server: EngineServer) -> None:
    before = (await limits(server, "r0"))["max_passes"]

    async def whatever_the_version(**fields: Any) -> CommandResult:
        async with server.async_control() as client:
            response = await client.post(
                "/control/v1/limits", json={"limits": {"max_passes": 5}, **fields}, headers={"if-match": "*"}
            )
        assert response.status_code == 200, response.text
        return msgspec.json.decode(response.content, type=CommandResult)

    timed, lasting = await asyncio.gather(whatever_the_version(revert_after_s=1), whatever_the_version())
    assert timed.operation is not None
    assert lasting.operation is not None
    if timed.operation.started_at < lasting.operation.started_at:
        async with server.async_control() as client:
            revert = timed.operation.params["revert_operation"]
            response = await client.get(f"/control/v1/operations/{revert}")
        assert msgspec.json.decode(response.content, type=Operation).phase == "cancelled"
    await command(server, "/limits", limits={"max_passes": before})
