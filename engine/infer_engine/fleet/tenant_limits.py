"""Changing what a tenant may use: what it will do, and doing it, at the door and on every replica."""

from collections.abc import Mapping

from infer_engine.fleet.beginning import Wanted
from infer_engine.fleet.outlook_desk import OutlookDesk
from infer_engine.fleet.outlook_words import extended, of_tenant
from infer_engine.fleet.telling import tell_all
from infer_engine.fleet.tenants import TenantDesk
from infer_engine.protocol import EVERYONE, ChangeTenant, Effect, TenantLimits, Tenants, TenantStatus
from infer_engine.replica.handle import ReplicaHandle


def predict(
    desk: TenantDesk,
    now: Tenants,
    handles: Mapping[str, ReplicaHandle],
    tenant: str,
    command: ChangeTenant,
) -> Effect:
    """What the change does to those who are here now. Refusal 422 when it does not fit."""
    before = desk.limits(tenant)
    after = desk.patched(tenant, command.limits, forget=command.forget)
    summary = [
        f"{_name(tenant)}: {field} {shown_limit(field, getattr(before, field))}"
        f" → {shown_limit(field, getattr(after, field))}"
        for field in TenantLimits.__struct_fields__
        if getattr(before, field) != getattr(after, field)
    ] or ["the limits are these already: nothing will change"]
    concerned = [each for each in now.tenants if each.name == tenant or (tenant == EVERYONE and not each.own)]
    numbers: dict[str, float | None] = {
        "running": float(sum(each.running for each in concerned)),
        "waiting": float(sum(each.waiting for each in concerned)),
        "kv_blocks": float(sum(each.kv_blocks for each in concerned)),
    }
    warnings: list[str] = []
    for each in concerned:
        summary += _consequences(each, after, handles)
    if not concerned and tenant != EVERYONE:
        warnings.append(f"{tenant} has no requests now")
    if any(each.running for each in concerned):
        warnings.append("who runs goes on: limits decide on what is taken and admitted from now on")
    return Effect(summary=summary, numbers=numbers, warnings=warnings)


def with_outlook(
    effect: Effect,
    outlook: OutlookDesk,
    desk: TenantDesk,
    tenant: str,
    command: ChangeTenant,
    wanted: Wanted,
) -> Effect:
    """``effect`` and what comes of it within a minute."""
    after = desk.patched(tenant, command.limits, forget=command.forget)
    if tenant == EVERYONE or after == desk.limits(tenant):
        return effect

    def then(name: str) -> TenantLimits:
        return after if name == tenant else desk.limits(name)

    minute = outlook.next_minute(then, shed=wanted.shed, tenant=tenant)
    return extended(effect, *of_tenant(minute, effect.numbers.get("kv_blocks") or 0.0))


def planned(
    desk: TenantDesk, tenant: str, command: ChangeTenant
) -> tuple[TenantLimits | None, TenantLimits | None]:
    """What its own limits are and will be, None for the default's. Refusal when they do not fit."""
    after = desk.patched(tenant, command.limits, forget=command.forget)
    return _own(desk, tenant), None if command.forget and tenant != EVERYONE else after


async def apply(
    desk: TenantDesk, handles: Mapping[str, ReplicaHandle], tenant: str, command: ChangeTenant
) -> tuple[TenantLimits | None, TenantLimits | None]:
    """What its own limits were and are, None for the default's. Refusal when they do not fit, or when a
    replica did not obey (the door does by then, and the replica will)."""
    before, own = planned(desk, tenant, command)
    await _put(desk, handles, tenant, own, reverts=command.revert_after_s is not None)
    return before, own


async def restore(
    desk: TenantDesk,
    handles: Mapping[str, ReplicaHandle],
    tenant: str,
    limits: TenantLimits | None,
    expected: TenantLimits | None,
) -> bool:
    """Put ``limits`` in the place of ``expected``; False when somebody has put others there."""
    if _own(desk, tenant) != expected:
        return False
    await _put(desk, handles, tenant, limits)
    return True


def _own(desk: TenantDesk, tenant: str) -> TenantLimits | None:
    return desk.default if tenant == EVERYONE else desk.named.get(tenant)


async def _put(
    desk: TenantDesk,
    handles: Mapping[str, ReplicaHandle],
    tenant: str,
    limits: TenantLimits | None,
    *,
    reverts: bool = False,
) -> None:
    """Set a tenant's own limits, or drop them, at the door and then on the replicas."""
    desk.put(tenant, limits)
    change = {"tenant_default": desk.default} if tenant == EVERYONE else {"tenants": {tenant: limits}}
    await tell_all(
        {handle: dict(change) for handle in handles.values()},
        thing="what the tenant may use there",
        reverts=reverts,
    )


def _consequences(each: TenantStatus, after: TenantLimits, handles: Mapping[str, ReplicaHandle]) -> list[str]:
    lines: list[str] = []
    if after.requests_per_minute is not None and each.requests_last_minute > after.requests_per_minute:
        over = each.requests_last_minute - after.requests_per_minute
        lines.append(
            f"{each.name} sent {each.requests_last_minute} requests in the last minute: about {over} "
            "a minute will be refused"
        )
    if after.kv_share is not None:
        total = sum(handle.info.kv_blocks for handle in handles.values() if handle.info is not None)
        share = int(total * after.kv_share)
        if each.kv_blocks > share:
            lines.append(
                f"{each.name} holds {each.kv_blocks:,} blocks, its share is {share:,}: none of its "
                f"{each.waiting} waiting is admitted on a replica where it is over its share"
            )
    if after.tier is not None:
        lines.append(
            f"{each.name}: new requests are {after.tier}; its {each.waiting} waiting keep their tier"
        )
    return lines


def _name(tenant: str) -> str:
    return "all tenants without limits of their own" if tenant == EVERYONE else tenant


def shown_limit(field: str, value: object) -> str:
    """As ``--limit`` and the console take it: a share in percent."""
    if isinstance(value, float) and field == "kv_share":
        return f"{100 * value:.4g}%"
    return "no limit" if value is None else f"{value}"
