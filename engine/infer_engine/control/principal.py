"""Who a caller of the control API is: what the server found out by itself, never what the caller says."""

from dataclasses import dataclass
from typing import Any, Literal

from starlette.types import Scope

from infer_engine.control.roles import Role

#: How the server knows: the uid of the process at the other end of the unix socket, a bearer token, or a
#: client certificate.
AuthMethod = Literal["unix_peer", "token", "certificate"]

#: Where a request's principal lies in its ASGI scope, once it is known.
SCOPE_KEY = "infer_engine.principal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """``subject`` is a server-made name (``uid:1000``, a token's name, a certificate's subject): printable
    ASCII, at most 64 characters. What a client claims to be is kept apart, in the command's ``actor``."""

    subject: str
    role: Role
    auth_method: AuthMethod
    #: The first 8 hexadecimal digits of the token's SHA-256; None without a token.
    token_id: str | None = None
    peer_uid: int | None = None
    peer_pid: int | None = None
    source_ip: str | None = None


def principal_of(scope: Scope) -> Principal | None:
    """Who sent this request; None before it was authenticated, and for nobody."""
    found: Any = scope.get(SCOPE_KEY)
    return found if isinstance(found, Principal) else None


def remember(scope: Scope, principal: Principal) -> None:
    scope[SCOPE_KEY] = principal
