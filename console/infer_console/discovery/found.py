"""An engine server that was found, and what it said of itself. All text in it is the server's or a broker's:
untrusted."""

from typing import Literal

from msgspec import Struct

#: ``unknown``: it was named somewhere and cannot be asked from here.
Liveness = Literal["online", "offline", "refused", "unknown"]


class Found(Struct, frozen=True, kw_only=True):
    """``where``: what it was found through. Unknown is None."""

    where: str
    state: Liveness
    #: For ``--connect``; None where operators cannot reach it, or where nobody said how.
    url: str | None = None
    #: Where its clients send requests.
    gateway: str | None = None
    name: str | None = None
    model: str | None = None
    version: str | None = None
    simulated: bool | None = None
    replicas: int | None = None
    ready: int | None = None
    #: Why there is no more to say.
    why: str | None = None


class DiscoverError(Exception):
    """A place that was to be searched and cannot be; ``str()`` says which and why."""
