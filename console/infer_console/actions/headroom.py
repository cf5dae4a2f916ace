"""Move a mark of the pool: how much stays free of new admissions."""

from typing import cast

from infer_engine.protocol import Command, Kv, SetHeadroom, Tier

from infer_console.actions.action import (
    REASON,
    REVERT_AFTER,
    Action,
    Undo,
    Verdict,
    every_replica,
    goes_back,
    number,
    text,
)
from infer_console.actions.params import Amount, Param, Values
from infer_console.state.picture import Picture, ReplicaPicture


def _build(target: str | None, values: Values) -> Command:
    amount = values.get("headroom")
    given = amount if isinstance(amount, Amount) else Amount()
    return SetHeadroom(
        replica=target,
        percent=given.percent,
        blocks=given.blocks,
        tier=cast(Tier, text(values, "tier")),
        revert_after_s=number(values, "revert_after"),
        reason=text(values, "reason"),
    )


def _refuse(picture: Picture, target: str | None) -> str | None:
    if target is not None and target not in picture.replicas:
        return f"there is no replica {target}"
    if not picture.replicas:
        return "there is no replica"
    return None


def new_limit(total: int, amount: Amount) -> int:
    """The mark, in blocks, that leaves ``amount`` free of a pool of ``total``; never below 0."""
    if amount.blocks is not None:
        return max(0, total - amount.blocks)
    # As the engine rounds; the last term is for shares that floats cannot hold.
    return max(0, int(total * (100.0 - (amount.percent or 0.0)) / 100.0 + 1e-9))


def present_headroom(kv: Kv) -> str | None:
    """The headroom as an operator would type it: a whole percentage where that is the same mark, else blocks;
    None where the pool is not known."""
    if not kv.total or kv.admit_limit is None:
        return None
    share = round(100 * (1 - kv.admit_limit / kv.total))
    same = new_limit(kv.total, Amount(percent=float(share))) == kv.admit_limit
    return f"{share}%" if same else f"{kv.total - kv.admit_limit}b"


def _unchanged(picture: Picture, target: str | None, values: Values) -> bool:
    amount = values.get("headroom")
    if not isinstance(amount, Amount):
        return False
    shown = [each.status.kv for name, each in picture.replicas.items() if target in (None, name)]
    return bool(shown) and all(
        kv.total is not None and new_limit(kv.total, amount) == _mark(kv, text(values, "tier"))
        for kv in shown
    )


def _mark(kv: Kv, tier: str) -> int | None:
    return kv.batch_limit if tier == "batch" else kv.admit_limit


def _effect(picture: Picture, target: str | None, values: Values) -> list[str]:
    amount = values.get("headroom")
    if not isinstance(amount, Amount):
        return []
    tier = text(values, "tier") or "interactive"
    shown = {name: each for name, each in picture.replicas.items() if target in (None, name)}
    lines = [line for name, each in shown.items() for line in _replica_effect(name, each, amount, tier)]
    lines.append(
        "it changes admission only: nobody running is evicted, and a replica with nothing running ignores it"
    )
    return [*lines, *goes_back(values)]


def _replica_effect(name: str, shown: ReplicaPicture, amount: Amount, tier: str) -> list[str]:
    kv = shown.status.kv
    old = _mark(kv, tier)
    if kv.total is None or old is None:
        return [f"{name}: its pool is not known yet"]
    new = new_limit(kv.total, amount)
    share = f"{1 - new / kv.total:.0%}" if kv.total else "–"
    change = "admits fewer" if new < old else "admits more" if new > old else "changes nothing"
    lines = [
        f"{name}: {tier} admitted up to {new:,} of {kv.total:,} blocks (now {old:,}), "
        f"headroom {share}: {change}"
    ]
    if kv.used is not None and kv.used >= new:
        lines.append(f"{name}: {kv.used:,} used already, so none is admitted until fewer than {new:,} are")
    return lines


def _verify(picture: Picture, target: str | None, values: Values) -> Verdict | None:
    amount, tier = values.get("headroom"), text(values, "tier")
    marks = {name: each.status.kv for name, each in picture.replicas.items() if target in (None, name)}
    if not isinstance(amount, Amount) or not marks:
        return None
    there = [
        name
        for name, kv in marks.items()
        if kv.total is not None and _mark(kv, tier) == new_limit(kv.total, amount)
    ]
    return Verdict(len(there) == len(marks), f"{len(there)} of {len(marks)} marks moved")


def _undo(picture: Picture, target: str | None, values: Values) -> Undo | None:
    """Only for one replica: several may have had several marks."""
    shown = picture.replicas.get(target or "")
    kv = shown.status.kv if shown is not None else None
    mark = _mark(kv, text(values, "tier")) if kv is not None else None
    if kv is None or kv.total is None or mark is None:
        return None
    return Undo("headroom", target, {"headroom": f"{kv.total - mark}b", "tier": text(values, "tier")})


HEADROOM = Action(
    key="H",
    name="headroom",
    title="Headroom",
    danger="reversible",
    target="replica or fleet",
    capability="headroom",
    params=(
        Param(
            name="headroom",
            kind="amount",
            label="headroom",
            hint="10% or 50b; more headroom admits fewer, less admits more",
        ),
        Param(
            name="tier", kind="choice", label="tier", default="interactive", choices=("interactive", "batch")
        ),
        REVERT_AFTER,
        REASON,
    ),
    build=_build,
    effect=_effect,
    refusal=_refuse,
    unchanged=_unchanged,
    verify=_verify,
    undo=_undo,
    count=every_replica,
    asks=True,
)
