"""Every command is done once, for the version it was meant for, and written down."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest
from infer_engine.control.api import build_control
from infer_engine.control.context import Context
from support.server import JSON

Client = httpx2.AsyncClient


@pytest.fixture
async def api(context: Context) -> AsyncGenerator[Client]:
    transport = httpx2.ASGITransport(app=build_control(context, lambda _: "admin"))
    async with Client(transport=transport, base_url="http://localhost/control/v1", headers=JSON) as client:
        yield client


def records(context: Context) -> list[dict[str, Any]]:
    return context.audit.files.after(0, 1_000)


async def tenant(api: Client, limits: dict[str, Any], **headers: str) -> httpx2.Response:
    return await api.post("/tenants/acme", json={"limits": limits}, headers=headers)


async def version(api: Client) -> str:
    return str((await api.get("/tenants/acme")).headers["etag"])


async def test_a_change_needs_the_version_it_is_for(api: Client) -> None:
    missing = await tenant(api, {"prompt_tokens": 10})
    assert (missing.status_code, missing.json()["code"]) == (428, "version_required")
    first = await version(api)
    done = await tenant(api, {"prompt_tokens": 10}, **{"if-match": first})
    assert done.status_code == 200
    assert done.headers["etag"] == f'"{done.json()["resource_version"]}"' == await version(api) != first
    stale = await tenant(api, {"prompt_tokens": 20}, **{"if-match": first})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale_version")
    assert stale.json()["current"]["limits"]["prompt_tokens"] == 10
    assert stale.json()["resource_version"] == done.json()["resource_version"]


async def test_a_dry_run_tells_the_version_and_changes_nothing(api: Client, context: Context) -> None:
    dry = await api.post("/tenants/acme", json={"limits": {"prompt_tokens": 5}, "dry_run": True})
    assert f'"{dry.json()["resource_version"]}"' == await version(api)
    assert records(context) == []


async def test_a_dry_run_is_a_question_and_its_refusal_is_no_deed(api: Client, context: Context) -> None:
    asked = await api.post("/tenants/acme", json={"limits": {"kv_share": 7}, "dry_run": True})
    missing = await api.post("/replicas/r9:drain", json={"dry_run": True})
    assert (asked.status_code, missing.status_code) == (422, 404)
    assert records(context) == []
    tried = await api.post("/replicas/r9:drain", json={})
    assert tried.status_code == 404
    assert [(each["stage"], each["dry_run"]) for each in records(context)][-1] == ("completed", False)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_who_has_no_right_to_ask_is_written_down(context: Context, dry_run: bool) -> None:
    transport = httpx2.ASGITransport(app=build_control(context, lambda _: "viewer"))
    async with Client(transport=transport, base_url="http://localhost/control/v1", headers=JSON) as viewer:
        denied = await viewer.post("/replicas/r9:drain", json={"dry_run": dry_run})
    assert denied.status_code == 403
    (record,) = records(context)
    assert (record["stage"], record["outcome"]["code"]) == ("completed", "denied")


async def test_what_is_sent_again_is_answered_again(api: Client, context: Context) -> None:
    headers = {"idempotency-key": "k-1", "if-match": await version(api)}
    first = await tenant(api, {"prompt_tokens": 10}, **headers)
    again = await tenant(api, {"prompt_tokens": 10}, **headers)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    other = await tenant(api, {"prompt_tokens": 11}, **headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert len(context.operations.newest_first()) == 1


@pytest.mark.parametrize("key", ["", "a b", "ü", "k" * 256])
async def test_keys_that_do_not_fit(api: Client, key: str) -> None:
    refused = await api.post("/injections", headers={"idempotency-key": key.encode()})  # type: ignore[dict-item]
    assert (refused.status_code, refused.json()["field"]) == (400, "idempotency-key")


async def test_a_key_under_way_is_not_begun_twice(api: Client, context: Context) -> None:
    headers = {"idempotency-key": "k", "if-match": await version(api)}
    both = await asyncio.gather(*(tenant(api, {"prompt_tokens": 7}, **headers) for _ in range(2)))
    codes = sorted(answer.status_code for answer in both)
    assert codes in ([200, 409], [200, 200])
    assert len(context.operations.newest_first()) == 1


async def test_everything_is_written_down_and_no_secret(api: Client, context: Context) -> None:
    await tenant(api, {"prompt_tokens": 10}, **{"if-match": await version(api), "authorization": "Bearer s3"})
    await tenant(api, {"prompt_tokens": 11})
    await api.post("/headroom", content=b"[", headers={"content-type": "application/json"})
    await api.get("/state", headers={"origin": "http://evil", "cookie": "s3"})
    seen = [(each["stage"], each["verb"], each.get("outcome", {}).get("code")) for each in records(context)]
    assert seen == [
        ("received", "tenant", None),
        ("completed", "tenant", "ok"),
        ("completed", "tenant", "version_required"),
        ("completed", "headroom", "invalid_json"),
        ("completed", "get ?", "origin_not_allowed"),
    ]
    done = records(context)[1]
    assert done["target"]["id"] == "acme"
    assert done["target"]["resource_version_before"] != done["target"]["resource_version_after"]
    assert done["params"]["limits"] == {"prompt_tokens": 10}
    written = b"".join(file.read_bytes() for file in context.audit.files.path.glob("audit-*.jsonl"))
    assert b"s3" not in written
    assert b"earer" not in written


async def test_without_an_audit_only_what_reduces_risk_is_done(
    api: Client, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    etag = await version(api)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        refused = await tenant(api, {"prompt_tokens": 10}, **{"if-match": etag})
        assert (refused.status_code, refused.json()["code"]) == (503, "audit_unavailable")
        stopped = await api.request("DELETE", "/injections")
        assert stopped.status_code == 200
        assert stopped.json()["warnings"]
        assert (await api.get("/state")).status_code == 200
        assert (await api.get("/audit")).json()["trouble"]
    assert await version(api) == etag
    assert (await tenant(api, {"prompt_tokens": 10}, **{"if-match": etag})).status_code == 200
    assert (await api.get("/audit")).json()["trouble"] is None


async def test_the_lease_keeps_others_from_the_whole_fleet(api: Client, context: Context) -> None:
    lease = (await api.post("/leases", json={"purpose": "upgrade"})).json()
    assert (await api.post("/leases")).json()["code"] == "lease_held"
    held = (await api.get("/leases")).json()["leases"]
    assert [(each["id"], each["token"], each["purpose"]) for each in held] == [("", 0, "upgrade")]
    every = {"if-match": "*"}
    body = {"limits": {"token_budget": 64}}
    blocked = await api.post("/limits", json=body, headers=every)
    assert (blocked.status_code, blocked.json()["code"]) == (409, "lease_held")
    mine = await api.post("/limits", json=body, headers={**every, "lease-token": str(lease["token"])})
    assert mine.json()["code"] == "not_ready"  # no replica is: the lease did not stand in the way
    assert (await api.post(f"/leases/{lease['id']}:renew")).json()["token"] == lease["token"]
    assert (await api.request("DELETE", f"/leases/{lease['id']}")).status_code == 200
    lost = await api.post("/limits", json=body, headers={**every, "lease-token": str(lease["token"])})
    assert (lost.status_code, lost.json()["code"]) == (409, "lease_lost")
    again = (await api.post("/leases")).json()
    assert again["token"] > lease["token"]


async def test_a_selection_is_refused_when_it_is_not_what_was_expected(api: Client) -> None:
    assert (await api.post("/requests:cancel", json={"where": "tenant=acme"})).status_code == 422
    wrong = await api.post("/requests:cancel", json={"where": "tenant=acme", "expect": 2})
    assert (wrong.status_code, wrong.json()["numbers"]) == (409, {"selected": 0.0, "expected": 2.0})
    none = await api.post("/requests:cancel", json={"where": "tenant=acme", "expect": 0})
    assert none.json()["operation"]["phase"] == "succeeded"


async def test_the_audit_is_told_by_pages(api: Client) -> None:
    for _ in range(3):
        await api.request("DELETE", "/injections")
    page = (await api.get("/audit?limit=2")).json()
    assert [record["number"] for record in page["records"]] == [5, 6]
    assert [r["number"] for r in (await api.get("/audit?after=0&limit=1")).json()["records"]] == [1]
    assert (await api.get("/audit?after=1&before=2")).status_code == 400
    assert json.dumps(page)
