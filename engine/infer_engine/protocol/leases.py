"""The lease on the fleet."""

from msgspec import Struct

from infer_engine.protocol.words import PROTOCOL_VERSION


class AcquireLease(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take the lease on the fleet, for changes to all of it that take several steps."""

    #: What for, as others are told who find it taken.
    purpose: str = ""
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class RenewLease(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class ReleaseLease(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


LeaseCommand = AcquireLease | RenewLease | ReleaseLease


class Lease(Struct, frozen=True, kw_only=True):
    """Its holder sends ``token`` as ``Lease-Token`` with every command. ``holder`` and ``purpose`` are
    untrusted text."""

    id: str
    #: Higher than that of every lease before it.
    token: int
    holder: str
    purpose: str = ""
    expires_at: float


class Leases(Struct, frozen=True, kw_only=True):
    """The leases that are held. Without their ids and tokens, which are their holders'."""

    version: int = PROTOCOL_VERSION
    leases: list[Lease]
