"""Bearer tokens: how they are made, and which of those that are on file somebody has shown.

A token is ``icp_<id>_<secret>``; only its SHA-256 is kept. Several live at once, so that one can be replaced
without anybody being locked out.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from infer_engine.protocol import Role

PREFIX = "icp"
SECRET_BYTES = 32
#: Longer than any token; what is longer is not looked at.
MAX_TOKEN_CHARS = 256
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One token on file. ``sha256`` is that of the whole token, in hexadecimal; ``expires`` has a zone."""

    id: str
    name: str
    role: Role
    sha256: str
    expires: datetime | None = None

    def has_expired(self, now_at: float) -> bool:
        return self.expires is not None and self.expires.timestamp() <= now_at


def new_token(
    name: str, role: Role, expires: datetime | None = None, taken: Iterable[str] = ()
) -> tuple[Token, str]:
    """A token and its text, which is not kept anywhere. ``taken`` are ids that are in use."""
    used = set(taken)
    while (token_id := secrets.token_hex(4)) in used:
        continue
    text = f"{PREFIX}_{token_id}_{secrets.token_urlsafe(SECRET_BYTES)}"
    return Token(id=token_id, name=name, role=role, sha256=digest(text), expires=expires), text


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def find(tokens: Sequence[Token], text: str) -> Token | None:
    """The token whose text this is, expired or not. All are compared, each in constant time, so that how
    long it takes says nothing."""
    if len(text) > MAX_TOKEN_CHARS:
        return None
    shown = digest(text)
    found: Token | None = None
    for token in tokens:
        if hmac.compare_digest(shown, token.sha256):
            found = token
    return found
