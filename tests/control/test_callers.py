"""Who may call what: every route of the built application against every kind of caller."""

import asyncio
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import pytest
from infer_engine.control.api import build_control, control_routes
from infer_engine.control.authentication import Authenticator
from infer_engine.control.backoff import FailureLog
from infer_engine.control.context import Context
from infer_engine.control.principal import attributed, principal_of
from infer_engine.control.roles import ROLES, may
from infer_engine.control.sessions import Sessions
from infer_engine.control.token_file import Certificate, TokenFile
from infer_engine.control.tokens import new_token
from infer_engine.peer import PeerProcess, certificate_names, peer_process
from infer_engine.protocol import Role
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

MADE = {role: new_token(f"the-{role}", role) for role in ROLES}
SHOWN: dict[str, str | None] = {
    "no token": None,
    "bad token": "Bearer icp_00000000_" + "A" * 43,
    "no bearer": f"Basic {MADE['admin'][1]}",
    **{role: f"Bearer {text}" for role, (_, text) in MADE.items()},
}


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: dict[str, str]


def authenticator(groups: dict[int, Role] | None = None) -> Authenticator:
    return Authenticator(
        owner_uid=1000,
        groups=groups or {},
        known=TokenFile(
            tuple(token for token, _ in MADE.values()), (Certificate("bastion.example", "viewer"),)
        ),
        wall=lambda: 1.0,
        failures=FailureLog(lambda: 1.0),
    )


def scope_of(
    method: str, path: str, headers: dict[str, str], state: dict[str, Any] | None = None
) -> dict[str, Any]:
    sent = {"host": "localhost", "content-type": "application/json", **headers}
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        "client": ("10.0.0.7", 4711),
        "state": state or {},
    }


async def ask(app: ASGIApp, scope: Scope, body: bytes = b"!") -> Answered:
    """The head of the answer alone: a stream that begins is answer enough."""
    answered: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
    bodies = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if bodies:
            return bodies.pop()
        await answered
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and not answered.done():
            headers = {name.decode(): value.decode() for name, value in message["headers"]}
            answered.set_result(Answered(message["status"], headers))

    async with asyncio.timeout(60):
        await app(scope, receive, send)
        return await answered


def concrete(path: str) -> str:
    return path.replace("{id}", "r0").replace("{name}", "acme")


async def test_every_route_against_every_caller(context: Context) -> None:
    app = build_control(context, authenticator=authenticator())
    permissions = {(each.method, each.path): each.permission for each in control_routes(context)}
    served = [(method, route.path) for route in app.routes if isinstance(route, Route)
              for method in route.methods or ()]  # fmt: skip
    assert len(app.routes) == len(served) >= 20
    wrong: list[str] = []
    for method, path in served:
        for caller, shown in SHOWN.items():
            app = build_control(context, authenticator=authenticator())
            headers = {} if shown is None else {"authorization": shown}
            answer = await ask(app, scope_of(method, concrete(path), headers))
            if caller not in ROLES:
                expected = answer.status == 401 and answer.headers["www-authenticate"] == "Bearer"
            elif may(caller, permissions[method, path]):  # type: ignore[arg-type]
                expected = answer.status not in (401, 403)
            else:
                expected = answer.status == 403
            if not expected:
                wrong.append(f"{method} {path} {caller}: {answer.status}")
    assert wrong == []


async def test_nobody_learns_which_paths_exist(context: Context) -> None:
    app = build_control(context, authenticator=authenticator())
    for path in ("/", "/control/v1/none", "/control/v1/replicas/none/blocks", "/metrics", "/docs"):
        assert (await ask(app, scope_of("GET", path, {}))).status == 401
        known = {"authorization": SHOWN["admin"] or ""}
        assert (await ask(app, scope_of("GET", path, known))).status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "localhost.evil.example"}, 421),
        ({"host": "127.0.0.1@evil.example"}, 421),
        ({"host": ""}, 421),
        ({"host": "FLEET.example:9000"}, 200),
        ({"host": "[::1]:9000"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://localhost"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 200),
    ],
)
async def test_browsers_are_turned_away_whatever_they_know(
    context: Context, headers: dict[str, str], status: int
) -> None:
    app = build_control(context, authenticator=authenticator(), names=("fleet.example",))
    shown = {"authorization": SHOWN["admin"] or "", **headers}
    assert (await ask(app, scope_of("GET", "/control/v1/state", shown))).status == status


@pytest.mark.parametrize("method", ["OPTIONS", "HEAD", "TRACE", "PROPFIND", "get", "CONNECT"])
async def test_methods_are_allowed_not_forbidden(context: Context, method: str) -> None:
    app = build_control(context, authenticator=authenticator())
    answer = await ask(app, scope_of(method, "/control/v1/state", {}))
    assert answer.status == 405
    assert {"GET", "POST", "DELETE"} <= set(answer.headers["allow"].split(", "))


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"]
)
async def test_commands_are_declared_as_json_even_without_a_body(context: Context, kind: str) -> None:
    app = build_control(context, authenticator=authenticator())
    headers = {"authorization": SHOWN["admin"] or "", "content-type": kind}
    assert (await ask(app, scope_of("POST", "/control/v1/headroom", headers), b"")).status == 415


async def test_wrong_tokens_are_slowed_and_right_ones_are_not(context: Context) -> None:
    app = build_control(context, authenticator=authenticator())
    wrong = {"authorization": SHOWN["bad token"] or ""}
    answers = [await ask(app, scope_of("GET", "/control/v1/state", wrong)) for _ in range(12)]
    assert [answer.status for answer in answers] == [401] * 10 + [429] * 2
    assert answers[-1].headers["retry-after"] == "60"
    right = {"authorization": SHOWN["viewer"] or ""}
    assert (await ask(app, scope_of("GET", "/control/v1/state", right))).status == 200
    assert (await ask(app, scope_of("GET", "/control/v1/state", {}))).status == 401


def identify(
    state: dict[str, Any], *, shown: str | None = None, groups: dict[int, Role] | None = None
) -> Any:
    headers = {} if shown is None else {"authorization": shown}
    return authenticator(groups).identify(scope_of("GET", "/", headers, state))


def test_a_unix_peer_is_known_by_its_user_or_group() -> None:
    owner = identify({"peer": PeerProcess(1, 1000, frozenset({1000}))})
    assert (owner.subject, owner.role, owner.auth_method, owner.peer_pid) == (
        "uid:1000",
        "admin",
        "unix_peer",
        1,
    )
    groups: dict[int, Role] = {50: "viewer", 60: "operator"}
    member = identify({"peer": PeerProcess(2, 1001, frozenset({1001, 50, 60}))}, groups=groups)
    assert (member.role, member.peer_uid, member.source_ip) == ("operator", 1001, None)
    with pytest.raises(Exception, match="neither runs the server nor is in one of its groups"):
        identify({"peer": PeerProcess(3, 0, frozenset({0}))}, groups=groups)


def test_a_token_decides_alone_even_for_the_owner() -> None:
    peer = PeerProcess(1, 1000, frozenset({1000}))
    shown = identify({"peer": peer}, shown=SHOWN["viewer"])
    assert (shown.role, shown.subject, shown.peer_uid) == ("viewer", "the-viewer", 1000)
    assert shown.token_id == MADE["viewer"][0].sha256[:8]
    assert identify({}, shown=SHOWN["operator"]).source_ip == "10.0.0.7"
    with pytest.raises(Exception, match="not known"):
        identify({"peer": peer}, shown=SHOWN["bad token"])


def test_a_certificate_is_known_by_one_of_its_names() -> None:
    certificate = {
        "subject": ((("organizationName", "x"),), (("commonName", "bastion"),)),
        "subjectAltName": (("IP Address", "10.0.0.1"), ("DNS", "bastion.example")),
    }
    assert certificate_names(certificate) == ("bastion", "bastion.example")
    found = identify({"certificate": certificate})
    assert (found.subject, found.role, found.auth_method) == ("bastion.example", "viewer", "certificate")
    for unknown in (None, {}, {"subject": ((("commonName", "other"),),)}):
        with pytest.raises(Exception, match="show a token"):
            identify({"certificate": unknown})


def test_the_kernel_says_who_the_peer_is() -> None:
    import os
    import socket

    ours, other = socket.socketpair(socket.AF_UNIX)
    with ours, other, socket.socket() as tcp:
        peer = peer_process(ours)
        assert peer is not None
        assert (peer.pid, peer.uid) == (os.getpid(), os.geteuid())
        assert {os.getegid(), *os.getgroups()} <= peer.gids
        assert peer_process(tcp) is None


def test_a_right_that_ended_ends_its_streams() -> None:
    known = authenticator()
    sessions = Sessions()
    cut: list[str] = []

    def session(name: str, scope: dict[str, Any]) -> Callable[[], None]:
        scope["state"]["abort"] = lambda: cut.append(name)
        opened = sessions.open(known.identify(scope), scope)
        opened.__enter__()
        return lambda: opened.__exit__(None, None, None)

    peer = {"peer": PeerProcess(1, 1000, frozenset())}
    ends = [
        session("owner", scope_of("GET", "/", {}, dict(peer))),
        session("viewer", scope_of("GET", "/", {"authorization": SHOWN["viewer"] or ""})),
        session("operator", scope_of("GET", "/", {"authorization": SHOWN["operator"] or ""})),
        session("bastion", scope_of("GET", "/", {}, {
            "certificate": {"subject": ((("commonName", "bastion.example"),),)}})),
    ]  # fmt: skip
    assert sessions.cut(known.still_holds) == 0
    known.known = TokenFile((MADE["viewer"][0],))
    assert sessions.cut(known.still_holds) == 2
    assert cut == ["operator", "bastion"]
    for end in ends:
        end()
    assert len(sessions) == 0


async def test_actors_are_whom_the_server_knows_with_what_they_claim() -> None:
    scope: dict[str, Any] = scope_of("GET", "/", {})
    assert (attributed(scope, "ann"), principal_of(scope)) == ("ann", None)
    from infer_engine.control.principal import remember

    remember(scope, authenticator().identify(scope_of("GET", "/", {"authorization": SHOWN["admin"] or ""})))
    assert attributed(scope, "ann") == "the-admin (ann)"
    assert attributed(scope, "") == "the-admin"
