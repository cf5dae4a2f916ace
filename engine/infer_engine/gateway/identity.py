"""Who sends a request, from its headers."""

from dataclasses import dataclass

from starlette.datastructures import Headers

from infer_engine.fleet.tenants import TENANT
from infer_engine.fleet.trace_parent import TraceParent, read_traceparent
from infer_engine.gateway.errors import ApiError, invalid, shown
from infer_engine.gateway.keys import ApiKey
from infer_engine.gateway.params import MAX_DEADLINE_S, TIERS, Params
from infer_engine.protocol import Tier

#: A client's own request id is a label: cut, never refused.
MAX_LABEL_CHARS = 128


@dataclass(frozen=True, slots=True)
class Identity:
    """``tier`` and ``deadline_s`` None: the header says nothing. ``label`` is untrusted text."""

    tenant: str
    tier: Tier | None
    label: str | None
    deadline_s: float | None = None
    #: Of the key that it came with; None where keys are not asked for.
    key: ApiKey | None = None
    trace_parent: TraceParent | None = None

    def tier_for(self, params: Params) -> Tier:
        """The header or the body may name the tier; otherwise it is the key's, or interactive. 400 when
        they disagree, 403 when the key may not have it."""
        if self.tier is not None and params.tier is not None and self.tier != params.tier:
            raise invalid(
                "tier",
                f"tier is {params.tier} but the header says {self.tier}; give one of them",
            )
        tier = self.tier or params.tier
        ceiling = self.key.tier if self.key is not None else None
        if ceiling == "batch" and tier == "interactive":
            raise ApiError(
                403,
                "tier interactive is not allowed with this API key; batch is",
                param="tier",
                code="tier_not_allowed",
                retry=False,
            )
        return tier or ceiling or "interactive"

    def deadline_for(self, params: Params) -> float | None:
        """Seconds from arrival; the header or the body may say it. 400 when they disagree."""
        if None not in (self.deadline_s, params.deadline_s) and self.deadline_s != params.deadline_s:
            raise invalid(
                "deadline_s",
                f"deadline_s is {params.deadline_s:g} but the header says {self.deadline_s:g}; "
                "give one of them",
            )
        return params.deadline_s if self.deadline_s is None else self.deadline_s

    def label_for(self, params: Params) -> str | None:
        label = self.label or params.user
        return label[:MAX_LABEL_CHARS] if label else None


def read_identity(headers: Headers, key: ApiKey | None = None) -> Identity:
    """Raise ApiError (400) naming the header that is not acceptable, 403 when the key is another tenant's."""
    tenant = headers.get("x-infer-tenant", "default" if key is None else key.tenant)
    if not TENANT.fullmatch(tenant):
        raise _bad_header("x-infer-tenant", "1 to 64 of the characters a-z, 0-9 and -", tenant)
    if key is not None and tenant != key.tenant:
        raise ApiError(
            403,
            f"this API key is of tenant {key.tenant}; the header x-infer-tenant says {tenant}",
            param="x-infer-tenant",
            code="tenant_mismatch",
            retry=False,
        )
    tier = headers.get("x-infer-tier")
    if tier is not None and tier not in TIERS:
        raise _bad_header("x-infer-tier", "one of " + ", ".join(TIERS), tier)
    deadline_s = _deadline(headers.get("x-infer-deadline-s"))
    trace_parent = read_traceparent(headers.get("traceparent"))
    return Identity(tenant, tier, headers.get("x-request-id"), deadline_s, key, trace_parent)


def _deadline(given: str | None) -> float | None:
    if given is None:
        return None
    try:
        deadline_s = float(given)
    except ValueError:
        deadline_s = 0.0
    if not 0 < deadline_s <= MAX_DEADLINE_S:  # NaN fails too
        raise _bad_header("x-infer-deadline-s", f"a number above 0 and up to {MAX_DEADLINE_S:,.0f}", given)
    return deadline_s


def _bad_header(name: str, allowed: str, given: str) -> ApiError:
    return invalid(name, f"the header {name} must be {allowed}, not {shown(given)}", code="invalid_header")
