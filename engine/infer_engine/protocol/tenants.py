"""What tenants use, and what they may use."""

from msgspec import Struct

from infer_engine.protocol.words import PROTOCOL_VERSION, Tier

#: The name that stands for all tenants without limits of their own.
EVERYONE = "*"


class TenantLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one tenant may use; None is no limit."""

    #: Requests taken per minute; more are refused at the door.
    requests_per_minute: int | None = None
    #: Tokens of the longest prompt that is taken.
    prompt_tokens: int | None = None
    #: Share (0 to 1) of each replica's KV pool, in blocks, up to which its requests are admitted.
    kv_share: float | None = None
    #: Long prompts that prefill at once on each replica.
    long_prefills: int | None = None
    #: The tier of all its requests, whatever they ask for.
    tier: Tier | None = None


class TenantStatus(Struct, frozen=True, kw_only=True):
    """What a tenant may use and what it uses now. ``name`` is untrusted text."""

    name: str
    limits: TenantLimits
    #: These limits are its own, not the default's.
    own: bool
    running: int
    waiting: int
    #: What several of a replica's requests share counts once, parted among all that are there.
    kv_blocks: int
    requests_last_minute: int
    #: Refused by its limits since the server's start.
    refused: int
    #: Opaque; another one after every change of its limits.
    resource_version: str | None = None


class Tenants(Struct, frozen=True, kw_only=True):
    """Tenants that have requests, had some lately, or have limits of their own."""

    version: int = PROTOCOL_VERSION
    simulated: bool = False
    default: TenantLimits
    tenants: list[TenantStatus]
