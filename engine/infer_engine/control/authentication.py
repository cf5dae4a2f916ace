"""Who sends a request: found out before anything else is looked at, and looked at again when the file of
tokens changes."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from infer_engine.control.backoff import FailureLog
from infer_engine.control.principal import Principal, remember
from infer_engine.control.problems import problem_response
from infer_engine.control.roles import may
from infer_engine.control.sessions import Sessions
from infer_engine.control.token_file import TokenFile
from infer_engine.control.tokens import Token, find
from infer_engine.fleet.generation import Refusal, refuse
from infer_engine.peer import PeerProcess, certificate_names
from infer_engine.protocol import Role

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Authenticator:
    """Knows callers by the token they show, else by their client certificate, else by the process at the
    other end of the unix socket. A token that was shown decides alone: it may be for less than its bearer
    could do. ``wall`` gives Unix seconds."""

    owner_uid: int
    #: By group id, what its members may do over the unix socket.
    groups: Mapping[int, Role]
    known: TokenFile
    wall: Callable[[], float]
    failures: FailureLog

    def identify(self, scope: Scope) -> Principal:
        """Refusal: 401 for nobody, 429 for somebody who shows wrong tokens all the time."""
        connection: Mapping[str, Any] = scope.get("state", {})
        process: PeerProcess | None = connection.get("peer")
        source_ip = scope["client"][0] if process is None and scope.get("client") else None
        shown = Headers(scope=scope).getlist("authorization")
        if shown:
            token = self._by_token(shown, source_ip or (f"uid {process.uid}" if process else "?"))
            return Principal(
                subject=token.name,
                role=token.role,
                auth_method="token",
                token_id=token.sha256[:8],
                peer_uid=process.uid if process else None,
                peer_pid=process.pid if process else None,
                source_ip=source_ip,
            )
        if process is not None:
            return self._by_process(process)
        return self._by_certificate(certificate_names(connection.get("certificate")), source_ip)

    def still_holds(self, principal: Principal) -> bool:
        """Whether who was let in would be let in again, for as much."""
        if principal.auth_method == "certificate":
            return any(
                each.name == principal.subject and each.role == principal.role
                for each in self.known.certificates
            )
        if principal.auth_method == "unix_peer":
            return True  # neither the owner nor the groups change while the server runs
        return any(
            token.sha256.startswith(principal.token_id or "-")
            and token.role == principal.role
            and not token.has_expired(self.wall())
            for token in self.known.tokens
        )

    def _by_token(self, shown: list[str], source: str) -> Token:
        kind, _, text = shown[0].partition(" ")
        token = find(self.known.tokens, text.strip()) if len(shown) == 1 else None
        if token is None or kind.lower() != "bearer":
            wait_s = self.failures.failed(source)
            if wait_s is not None:
                raise Refusal(
                    refuse(429, "too_many_failures", "Too many wrong tokens came from there.").problem,
                    retry_after_s=wait_s,
                )
            log.warning("a wrong token from %s", source)
            raise refuse(401, "bad_token", "This token is not known here.")
        if token.has_expired(self.wall()):
            raise refuse(401, "token_expired", "This token has expired.")
        return token

    def _by_process(self, process: PeerProcess) -> Principal:
        role: Role | None = "admin" if process.uid == self.owner_uid else None
        for gid, granted in self.groups.items():
            if gid in process.gids and (role is None or may(granted, role)):
                role = granted
        if role is None:
            raise refuse(
                401,
                "unknown_peer",
                "This user may not call the control API.",
                f"uid {process.uid} neither runs the server nor is in one of its groups; show a token.",
            )
        return Principal(
            subject=f"uid:{process.uid}",
            role=role,
            auth_method="unix_peer",
            peer_uid=process.uid,
            peer_pid=process.pid,
        )

    def _by_certificate(self, names: tuple[str, ...], source_ip: str | None) -> Principal:
        roles: dict[str, Role] = {each.name: each.role for each in self.known.certificates}
        for name in names:
            if name in roles:
                return Principal(
                    subject=name, role=roles[name], auth_method="certificate", source_ip=source_ip
                )
        raise refuse(401, "no_token", "Who calls has to be known: show a token.")


class Authenticated:
    """Lets only known callers through, so that nobody else learns which paths exist; cuts the connections of
    those who are no longer known."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, sessions: Sessions) -> None:
        self._app = app
        self._authenticator = authenticator
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            principal = self._authenticator.identify(scope)
        except Refusal as refusal:
            response = problem_response(refusal)
            if refusal.problem.status == 401:
                response.headers["www-authenticate"] = "Bearer"
            await response(scope, receive, send)
            return
        remember(scope, principal)
        with self._sessions.open(principal, scope):
            await self._app(scope, receive, send)
