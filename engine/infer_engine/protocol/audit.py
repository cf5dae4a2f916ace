"""Records of the audit."""

from typing import Any

from msgspec import Struct

from infer_engine.protocol.words import PROTOCOL_VERSION


class AuditPage(Struct, frozen=True, kw_only=True):
    """Records of the audit, the oldest first, each as it was written: its ``sha256`` can be computed
    again."""

    version: int = PROTOCOL_VERSION
    records: list[dict[str, Any]]
    #: Why records cannot be written now; None when they can.
    trouble: str | None = None
