"""Where a server is that is not ours, and what it speaks: ``vllm+http://host:8000``."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from infer_engine.foreign.kind import ForeignKind

KINDS = ("vllm", "sglang", "llamacpp", "auto")
MOST_CHARS = 300
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Address:
    """``base_url`` is ``http(s)://host:port`` and a path, if it has one, without a slash at its end."""

    kind: ForeignKind
    base_url: str
    host: str
    port: int

    @property
    def place(self) -> str:
        """As people call it."""
        return f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK

    @property
    def is_secret_safe(self) -> bool:
        """Whether nobody on the way reads what is sent there."""
        return self.base_url.startswith("https:") or self.is_loopback


def parse_address(url: str) -> Address:
    """Raise ValueError, which says what was given and what is allowed."""
    allowed = f"expected KIND+http(s)://HOST:PORT with one of {', '.join(KINDS)} as KIND"
    if len(url) > MOST_CHARS or not url.isascii() or re.search(r"[\s\\\x00-\x20\x7f]", url):
        raise ValueError(f"{url[:60]!r} was given: {allowed}")
    kind, plus, plain = url.partition("+")
    try:
        parts = urlsplit(plain)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} was given: {error}; {allowed}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("a key does not belong in the URL: it goes into INFER_UPSTREAM_TOKEN, or a file")
    if not plus or kind not in KINDS or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} was given: {allowed}")
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r} was given: no query belongs in it; {allowed}")
    port = port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname
    named = f"[{host}]" if ":" in host else host
    return Address(
        kind=kind,
        base_url=f"{parts.scheme}://{named}:{port}{parts.path.rstrip('/')}",
        host=host,
        port=port,
    )
