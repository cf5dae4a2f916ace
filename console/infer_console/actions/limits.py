"""What the schedulers live by, while they run: how much a step computes, and how many run at once."""

from infer_engine.protocol import ChangeLimits, Command

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
    whole,
)
from infer_console.actions.params import Param, Values
from infer_console.state.picture import Picture

NOTHING = "nothing is changed yet: fill in a field"
#: What an operator changes in an incident; all others are for ``infer-console limits``. What is allowed
#: together the server knows: its prediction refuses what is not.
_LIMITS = {
    "token_budget": ("token budget", 64.0, "tokens a step; less: shorter steps, slower prompts"),
    "max_running": ("batch size", 8.0, "most sequences that run at once"),
    "max_long_prefills": ("long prefills", 1.0, "most long prompts that prefill at once"),
}
MOST = 1_000_000
#: Replicas named in one line.
MOST_NAMED = 4


def limits_of(values: Values) -> dict[str, int]:
    """Those that are given."""
    found = {name: whole(values, name) for name in _LIMITS}
    return {name: value for name, value in found.items() if value is not None}


def _build(target: str | None, values: Values) -> Command:
    return ChangeLimits(
        limits=limits_of(values),
        replica=target,
        revert_after_s=number(values, "revert_after"),
        reason=text(values, "reason"),
    )


def _refuse(picture: Picture, target: str | None) -> str | None:
    if target is not None and target not in picture.replicas:
        return f"there is no replica {target}"
    return None if picture.replicas else "there is no replica"


def _now(picture: Picture, target: str | None) -> dict[str, dict[str, int]]:
    """By replica, what it lives by; empty where it has not said."""
    return {
        name: each.status.limits
        for name, each in picture.replicas.items()
        if target is None or name == target
    }


def _unchanged(picture: Picture, target: str | None, values: Values) -> bool:
    given = limits_of(values)
    now = _now(picture, target)
    return not given or (bool(now) and all(given.items() <= limits.items() for limits in now.values()))


def _effect(picture: Picture, target: str | None, values: Values) -> list[str]:
    given = limits_of(values)
    if not given:
        return [NOTHING, *_present(picture, target)]
    lines: list[str] = []
    for replica, limits in _now(picture, target).items():
        for name, value in given.items():
            old = limits.get(name)
            lines.append(f"{replica}: {_words(name)} {'–' if old is None else f'{old:,}'} → {value:,}")
    lines.append("from the next step on; nobody who runs is evicted")
    return [*lines, *goes_back(values)]


def _present(picture: Picture, target: str | None) -> list[str]:
    """``r0, r1 have token budget 2048, batch size 24``; replicas that live by the same in one line."""
    alike: dict[str, list[str]] = {}
    for replica, limits in _now(picture, target).items():
        words = ", ".join(f"{_words(name)} {limits[name]:,}" for name in _LIMITS if name in limits)
        if words:
            alike.setdefault(words, []).append(replica)
    lines: list[str] = []
    for words, those in alike.items():
        more = f" and {len(those) - MOST_NAMED} more" if len(those) > MOST_NAMED else ""
        has = "has" if len(those) == 1 else "have"
        lines.append(f"{', '.join(those[:MOST_NAMED])}{more} {has} {words}")
    return lines


def _words(name: str) -> str:
    return _LIMITS[name][0]


def _verify(picture: Picture, target: str | None, values: Values) -> Verdict | None:
    given, now = limits_of(values), _now(picture, target)
    if not given or not now:
        return None
    there = sum(given.items() <= limits.items() for limits in now.values())
    return Verdict(there == len(now), f"{there} of {len(now)} live by it")


def _undo(picture: Picture, target: str | None, values: Values) -> Undo | None:
    """Only for one replica: several may have had several limits."""
    old = _now(picture, target).get(target or "", {})
    given = limits_of(values)
    if target is None or not given.keys() <= old.keys():
        return None
    return Undo("limits", target, {name: str(old[name]) for name in given})


LIMITS = Action(
    key="L",
    name="limits",
    title="Limits",
    danger="reversible",
    target="replica or fleet",
    capability="limits",
    params=(
        *(
            Param(
                name=name,
                kind="number",
                label=label,
                lowest=1,
                highest=MOST,
                optional=True,
                step=step,
                hint=hint,
                whole=True,
            )
            for name, (label, step, hint) in _LIMITS.items()
        ),
        REVERT_AFTER,
        REASON,
    ),
    build=_build,
    effect=_effect,
    refusal=_refuse,
    unchanged=_unchanged,
    unasked=NOTHING,
    verify=_verify,
    undo=_undo,
    count=every_replica,
    asks=True,
)
