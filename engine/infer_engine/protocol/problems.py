"""Refusals."""

from typing import Any

from msgspec import Struct


class Problem(Struct, frozen=True, kw_only=True):
    """RFC 9457 problem document with a stable ``code``."""

    status: int
    code: str
    title: str
    detail: str = ""
    field: str | None = None
    numbers: dict[str, float | None] = {}
    #: With ``stale_version``: the thing as it is now, and its version.
    current: dict[str, Any] | None = None
    resource_version: str | None = None
