"""Who sends a request, from its headers."""

import re
from dataclasses import dataclass

from starlette.datastructures import Headers

from infer_engine.gateway.errors import ApiError, invalid, shown
from infer_engine.gateway.params import TIERS, Params
from infer_engine.protocol import Tier

_TENANT = re.compile(r"[a-z0-9-]{1,64}")
#: A client's own request id is a label: cut, never refused.
MAX_LABEL_CHARS = 128


@dataclass(frozen=True, slots=True)
class Identity:
    """``tier`` None: the header says nothing. ``label`` is untrusted text."""

    tenant: str
    tier: Tier | None
    label: str | None

    def tier_for(self, params: Params) -> Tier:
        """The header or the body may name the tier; interactive when neither does. 400 when they disagree."""
        if self.tier is not None and params.tier is not None and self.tier != params.tier:
            raise invalid(
                "tier",
                f"tier is {params.tier} but the header says {self.tier}; give one of them",
            )
        return self.tier or params.tier or "interactive"

    def label_for(self, params: Params) -> str | None:
        label = self.label or params.user
        return label[:MAX_LABEL_CHARS] if label else None


def read_identity(headers: Headers) -> Identity:
    """Raise ApiError (400) naming the header that is not acceptable."""
    tenant = headers.get("x-infer-tenant", "default")
    if not _TENANT.fullmatch(tenant):
        raise _bad_header("x-infer-tenant", "1 to 64 of the characters a-z, 0-9 and -", tenant)
    tier = headers.get("x-infer-tier")
    if tier is not None and tier not in TIERS:
        raise _bad_header("x-infer-tier", "one of " + ", ".join(TIERS), tier)
    return Identity(tenant, tier, headers.get("x-request-id"))


def _bad_header(name: str, allowed: str, given: str) -> ApiError:
    return invalid(name, f"the header {name} must be {allowed}, not {shown(given)}", code="invalid_header")
