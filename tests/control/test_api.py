"""The control API's doors: every route has a permission, only local tools get in, every error is a problem
document."""

import socket
from collections.abc import AsyncGenerator
from typing import get_args

import httpx2
import msgspec
import pytest
from infer_engine.control.api import build_control, control_routes
from infer_engine.control.context import Context
from infer_engine.control.guard import MAX_BODY_BYTES
from infer_engine.control.roles import ROLES, Role, may
from infer_engine.protocol import (
    Blocks,
    Events,
    Hello,
    Operations,
    Problem,
    RequestRow,
    Requests,
    Status,
)
from starlette.routing import Route
from support.asking import complete
from support.if_match import CurrentVersion
from support.server import JSON, EngineServer

Client = httpx2.AsyncClient
READS = ["/hello", "/state", "/requests", "/events", "/operations"]


@pytest.fixture
async def api(context: Context) -> AsyncGenerator[Client]:
    transport = httpx2.ASGITransport(app=build_control(context, lambda _: "admin"))
    async with Client(
        transport=transport,
        base_url="http://localhost/control/v1",
        headers=JSON,
        auth=CurrentVersion(),
    ) as client:
        yield client


def problem(response: httpx2.Response) -> Problem:
    assert response.headers["content-type"] == "application/problem+json"
    document = msgspec.json.decode(response.content, type=Problem)
    assert document.status == response.status_code
    return document


def test_every_route_has_a_permission_from_the_table(context: Context) -> None:
    routes = control_routes(context)
    app = build_control(context, lambda _: None)
    declared = {(route.path, route.method) for route in routes}
    served = [route for route in app.routes if isinstance(route, Route)]
    assert len(served) == len(app.routes) == len(routes)
    assert {(route.path, method) for route in served for method in route.methods or ()} == declared
    assert all(route.permission in get_args(Role) for route in routes)
    writes = [route for route in routes if route.method != "GET"]
    assert writes
    assert {route.permission for route in writes} == {"operator"}


def test_roles_deny_by_default() -> None:
    assert not may(None, "viewer")
    assert [may("viewer", role) for role in ROLES] == [True, False, False, False]
    assert [may("content", role) for role in ROLES] == [True, True, False, False]
    assert [may("operator", role) for role in ROLES] == [True, True, True, False]
    assert all(may("admin", role) for role in ROLES)


@pytest.mark.parametrize("role", [None, "viewer"])
async def test_who_may_not_is_denied(context: Context, role: Role | None) -> None:
    transport = httpx2.ASGITransport(app=build_control(context, lambda _: role))
    async with Client(
        transport=transport,
        base_url="http://localhost/control/v1",
        headers=JSON,
        auth=CurrentVersion(),
    ) as client:
        assert (await client.get("/state")).status_code == (403 if role is None else 200)
        for path in (
            "/headroom",
            "/replicas/r0:drain",
            "/replicas/none:drain",
            "/requests/x:cancel",
            "/injections",
        ):
            assert problem(await client.post(path)).code == "denied"
        assert problem(await client.delete("/injections")).code == "denied"
        assert problem(await client.get("/tokens?requests=x")).code == "denied"


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:80", "", "[::1"]
)
async def test_unknown_hosts_are_turned_away(api: Client, host: str) -> None:
    assert problem(await api.get("/state", headers={"host": host})).status == 421


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]", "[::1]:8000", "infer-console"]
)
async def test_local_hosts_are_let_in(api: Client, host: str) -> None:
    assert (await api.get("/state", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "headers", [{"origin": "null"}, {"origin": "http://localhost"}, {"sec-fetch-site": "cross-site"}]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "PUT"])
async def test_web_pages_are_turned_away(api: Client, method: str, headers: dict[str, str]) -> None:
    assert problem(await api.request(method, "/injections", headers=headers)).code == "origin_not_allowed"


@pytest.mark.parametrize("path", READS)
async def test_documents_are_never_kept(api: Client, path: str) -> None:
    response = await api.get(path)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/nothing", 404, "not_found"),
        ("/state/", 404, "not_found"),
        ("/../state", 404, "not_found"),
        ("/requests/none", 404, "unknown_request"),
        ("/replicas/r9/blocks", 404, "unknown_replica"),
        ("/operations/op-9", 404, "unknown_operation"),
        ("/requests?state=gone", 400, "invalid_field"),
        ("/requests?replica=r9", 404, "unknown_replica"),
        ("/requests?ended_after=now", 400, "invalid_field"),
        ("/requests?ended_after=-1", 400, "invalid_field"),
        ("/requests?ended_after=nan", 400, "invalid_field"),
        ("/events?limit=0", 400, "invalid_field"),
        ("/events?limit=1e3", 400, "invalid_field"),
        ("/events?limit=99999999999999999999", 400, "invalid_field"),
        ("/watch?hz=0", 400, "invalid_field"),
        ("/watch?hz=nan", 400, "invalid_field"),
        ("/watch?hz=21", 400, "invalid_field"),
        ("/watch?hz=fast", 400, "invalid_field"),
        ("/watch?detail=everything", 400, "invalid_field"),
        ("/watch?replicas=r0,r9", 404, "unknown_replica"),
        ("/tokens", 400, "invalid_field"),
        ("/tokens?requests=" + ",".join(map(str, range(17))), 400, "invalid_field"),
        ("/tokens?requests=none", 404, "unknown_request"),
    ],
)
async def test_reads_that_do_not_fit(api: Client, path: str, status: int, code: str) -> None:
    refused = problem(await api.get(path))
    assert (refused.status, refused.code) == (status, code)


async def test_wrong_methods(api: Client) -> None:
    response = await api.get("/headroom")
    assert problem(response).status == 405
    assert response.headers["allow"] == "POST"
    # HEAD of a stream would never end.
    assert (await api.head("/watch")).status_code == 405


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b'{"percent": NaN}', "application/json", 400),
        (b"[" * 60_000, "application/json", 400),
        (b'{"a":' * 12_000, "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'{"percent": "50"}', "application/json", 422),
        (b'{"percent": 50}', "text/plain", 415),
        (b"percent=50", "application/x-www-form-urlencoded", 415),
        (b" " * (MAX_BODY_BYTES + 1), "application/json", 413),
    ],
)
async def test_hostile_bodies(api: Client, content: bytes, content_type: str, status: int) -> None:
    response = await api.post("/headroom", content=content, headers={"content-type": content_type})
    assert problem(response).status == status
    assert (await api.get("/state")).status_code == 200


async def test_commands_on_a_fleet_that_loads(api: Client) -> None:
    assert problem(await api.post("/injections")).code == "no_ready_replica"
    assert problem(await api.post("/replicas/r0:drain")).code == "not_ready"
    assert problem(await api.post("/headroom", json={"percent": 10})).code == "not_ready"
    assert problem(await api.get("/replicas/r0/blocks")).code == "blocks_unknown"


async def test_documents_say_what_the_protocol_says(server: EngineServer) -> None:
    answer = await complete(server, 5)
    request = answer.headers["x-request-id"]
    async with server.async_control() as client:

        async def get(path: str) -> bytes:
            response = await client.get(f"/control/v1{path}")
            assert response.status_code == 200, response.text
            return response.content

        hello = msgspec.json.decode(await get("/hello"), type=Hello)
        assert {"watch", "drain", "headroom", "inject"} <= set(hello.capabilities)
        status = msgspec.json.decode(await get("/state"), type=Status)
        assert status.fleet.gateway.url == server.gateway_url
        assert status.fleet.model == "tiny"
        blocks = msgspec.json.decode(await get("/replicas/r0/blocks"), type=Blocks)
        assert sum(run.count for run in blocks.blocks) == blocks.total == 128
        row = msgspec.json.decode(await get(f"/requests/{request}"), type=RequestRow)
        assert (row.state, row.finish_reason, row.generated_tokens) == ("finished", "length", 5)
        finished = msgspec.json.decode(await get("/requests?state=finished&replica=r0"), type=Requests)
        assert request in [each.id for each in finished.requests]
        assert finished.ended == []
        beside = msgspec.json.decode(await get("/requests?ended_after=0"), type=Requests).ended
        assert (beside[0].id, beside[0].finish_reason) == (request, "length")
        assert beside[0].ended_at is not None
        since = msgspec.json.decode(await get(f"/requests?ended_after={beside[0].ended_at!r}"), type=Requests)
        assert since.ended == []
        events = msgspec.json.decode(await get("/events?limit=3"), type=Events).events
        assert [event.kind for event in events if event.request == request] == ["admit", "finish"]
        msgspec.json.decode(await get("/operations"), type=Operations)


async def test_only_the_owner_can_open_the_socket(server: EngineServer) -> None:
    assert server.socket_path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(server.socket_path))


async def test_a_compressed_body_is_refused(api: Client) -> None:
    answer = await api.post("/headroom", json={"percent": 10}, headers={"content-encoding": "gzip"})
    refusal = problem(answer)
    assert (refusal.status, refusal.code) == (415, "encoding_not_supported")
    assert "gzip" in refusal.detail
    answer = await api.post("/headroom", json={"percent": 10}, headers={"content-encoding": "identity"})
    assert problem(answer).code == "not_ready"
