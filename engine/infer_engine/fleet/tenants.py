"""What each tenant may use, and the part of it that is decided at the door: how often it may ask, how much at
once, and as which tier. Shares of the pool and long prefills are the replicas' to keep."""

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from msgspec import structs

from infer_engine.core.limits import MOST_TENANTS
from infer_engine.fleet.generation import GenerationSpec, Refusal, misfit, refuse
from infer_engine.fleet.recent import Recent
from infer_engine.fleet.tenant_rate import TenantRate
from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import EVERYONE, Problem, TenantLimits, Tenants, TenantStatus

#: How tenants are called.
TENANT = re.compile(r"[a-z0-9-]{1,64}")
#: Tenants whose refusals are counted; those refused last the longest ago are forgotten first.
MOST_REFUSED = 4_096


@dataclass(slots=True)
class TenantDesk:
    """Moments are seconds of one monotonic clock."""

    default: TenantLimits = field(default_factory=TenantLimits)
    named: dict[str, TenantLimits] = field(default_factory=dict[str, TenantLimits])
    rate: TenantRate = field(default_factory=TenantRate)
    #: What came lately, taken or not.
    recent: Recent = field(default_factory=Recent)
    _refused: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])

    def limits(self, tenant: str) -> TenantLimits:
        """Those that the tenant goes by; of EVERYONE, the default."""
        return self.named.get(tenant, self.default)

    def at_the_door(self, spec: GenerationSpec, now_s: float) -> GenerationSpec:
        """Count the request, and return it as its tenant may ask for it: in the tier that is forced on it.
        Refusal 400 when its prompt is longer than its tenant's may be, 429 when too many came within a
        minute. Test traffic has guard rails of its own."""
        self.recent.add(spec, now_s)
        if spec.synthetic:
            return spec
        limits = self.limits(spec.tenant)
        try:
            _check_prompt(spec, limits)
            self._check_rate(spec, limits, now_s)
        except Refusal:
            self._refused[spec.tenant] = self._refused.get(spec.tenant, 0) + 1
            self._refused.move_to_end(spec.tenant)
            if len(self._refused) > MOST_REFUSED:
                self._refused.popitem(last=False)
            raise
        return spec if limits.tier is None else replace(spec, tier=limits.tier)

    def refused_elsewhere(self, spec: GenerationSpec) -> None:
        """It was let in here and not taken after all: it does not count."""
        if not spec.synthetic:
            self.rate.give_back(spec.tenant)

    def patched(self, tenant: str, patch: dict[str, Any], *, forget: bool) -> TenantLimits:
        """What the tenant's limits become; nothing changes yet. Refusal 422 naming the field."""
        if forget:
            return TenantLimits() if tenant == EVERYONE else self.default
        before = self.limits(tenant)
        unknown = sorted(set(patch) - set(TenantLimits.__struct_fields__))
        if unknown:
            raise misfit(
                unknown[0], f"there is no such limit; there are {', '.join(TenantLimits.__struct_fields__)}"
            )
        for name, value in patch.items():
            _check_value(name, value)
        if tenant != EVERYONE and tenant not in self.named and len(self.named) >= MOST_TENANTS:
            raise refuse(
                409,
                "too_many_tenants",
                "Too many tenants have limits of their own.",
                numbers={"named": len(self.named), "allowed": MOST_TENANTS},
            )
        return structs.replace(before, **patch)

    def put(self, tenant: str, limits: TenantLimits | None) -> None:
        """None: the tenant goes by the default again."""
        if tenant == EVERYONE:
            self.default = limits or TenantLimits()
        elif limits is None:
            self.named.pop(tenant, None)
        else:
            self.named[tenant] = limits

    def status(self, requests: Iterable[Tracked], parts: Mapping[str | None, float], now_s: float) -> Tenants:
        """``parts`` of a request's blocks are its own, by replica: 1 where it is not named."""
        known = (*self.named, *self._refused, *self.rate.tenants)
        usage: dict[str, tuple[int, int, float]] = dict.fromkeys(known, (0, 0, 0.0))
        for request in requests:
            tenant, runs = request.generation.spec.tenant, request.state == "running"
            running, waiting, blocks = usage.get(tenant, (0, 0, 0.0))
            own = request.blocks * parts.get(request.generation.replica, 1.0)
            usage[tenant] = (running + runs, waiting + (not runs), blocks + own)
        return Tenants(
            default=self.default,
            tenants=[
                self._status(name, running, waiting, round(blocks), now_s)
                for name, (running, waiting, blocks) in sorted(usage.items())
            ],
        )

    def _status(self, name: str, running: int, waiting: int, kv_blocks: int, now_s: float) -> TenantStatus:
        return TenantStatus(
            name=name,
            limits=self.limits(name),
            own=name in self.named,
            running=running,
            waiting=waiting,
            kv_blocks=kv_blocks,
            requests_last_minute=self.rate.count(name, now_s),
            refused=self._refused.get(name, 0),
        )

    def _check_rate(self, spec: GenerationSpec, limits: TenantLimits, now_s: float) -> None:
        most = limits.requests_per_minute
        wait_s = self.rate.take(spec.tenant, most, now_s)
        if wait_s is None:
            return
        raise Refusal(
            Problem(
                status=429,
                code="tenant_rate",
                title="Too many requests of this tenant.",
                detail=f"tenant {spec.tenant} may send {most} requests per minute.",
                numbers={"requests_last_minute": self.rate.count(spec.tenant, now_s), "allowed": most},
            ),
            retry_after_s=wait_s,
        )


def _check_prompt(spec: GenerationSpec, limits: TenantLimits) -> None:
    most, given = limits.prompt_tokens, len(spec.prompt)
    if most is not None and given > most:
        raise refuse(
            400,
            "tenant_prompt_too_long",
            "The prompt is longer than this tenant's may be.",
            f"the prompt has {given} tokens; tenant {spec.tenant} may send {most}.",
            field="prompt",
            numbers={"prompt_tokens": given, "allowed": most},
        )


def _check_value(name: str, value: Any) -> None:
    """Types by the struct, bounds here."""
    try:
        msgspec.convert({name: value}, TenantLimits)
    except msgspec.ValidationError as error:
        raise misfit(name, str(error)[:200]) from None
    if value is None or isinstance(value, str):
        return
    if name == "kv_share":
        if not 0 < value <= 1:
            raise misfit(name, f"above 0 and up to 1 is allowed, got {value!r}")
    elif not 1 <= value <= 1_000_000_000:
        raise misfit(name, f"1 to 1,000,000,000 is allowed, got {value!r}")
