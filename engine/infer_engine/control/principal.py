"""Who a caller of the control API is: what the server found out by itself, never what the caller says."""

from dataclasses import dataclass
from typing import Any, Literal

from starlette.types import Scope

from infer_engine.protocol import Role

#: How the server knows: the uid of the process at the other end of the unix socket, a bearer token, or a
#: client certificate.
AuthMethod = Literal["unix_peer", "token", "certificate"]

#: Where a request's principal lies in its ASGI scope, once it is known.
SCOPE_KEY = "infer_engine.principal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """``subject`` is a name that the server's side gave (``uid:1000``, or the name of a token or certificate
    in the token file): printable ASCII, at most 128 characters. What a client claims to be is kept apart, in
    the command's ``actor``."""

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


def attributed(scope: Scope, claimed: str) -> str:
    """Whom operations and events name: the subject the server knows, and in parentheses what the caller
    claims, which tells people apart who share an account."""
    principal = principal_of(scope)
    if principal is None:
        return claimed
    return f"{principal.subject} ({claimed})" if claimed else principal.subject
