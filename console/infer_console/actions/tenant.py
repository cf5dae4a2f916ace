"""What one tenant may use."""

from typing import Any

from infer_engine.protocol import ChangeTenant, Command

from infer_console.actions.action import REASON, REVERT_AFTER, Action, goes_back, number, text
from infer_console.actions.params import NEVER, Param, Value, Values
from infer_console.state.picture import Picture

NOTHING = "nothing is limited yet: fill in a field"
KEEP, LIFT = "as it is", "any"
#: Fields of TenantLimits that are numbers: the least and the most that is allowed, label, hint.
_NUMBERS = {
    "requests_per_minute": (0.0, 1e6, "requests a minute", "more are refused with 429"),
    "prompt_tokens": (1.0, 1e7, "longest prompt", "tokens; longer ones are refused"),
    "kv_share": (0.0, 100.0, "KV share %", "of each replica's pool"),
    "long_prefills": (0.0, 1e4, "long prefills", "at once on each replica"),
}


def limits_of(values: Values) -> dict[str, Any]:
    """What is to change; None lifts a limit."""
    changed: dict[str, Any] = {}
    for name in _NUMBERS:
        value: Value = values.get(name)
        if value == NEVER:
            changed[name] = None
        elif isinstance(value, float | int):
            changed[name] = value / 100.0 if name == "kv_share" else int(value)
    tier = text(values, "tier")
    if tier not in ("", KEEP):
        changed["tier"] = None if tier == LIFT else tier
    return changed


def _build(_target: str | None, values: Values) -> Command:
    return ChangeTenant(
        limits=limits_of(values),
        revert_after_s=number(values, "revert_after"),
        reason=text(values, "reason"),
    )


def _refuse(_picture: Picture, _target: str | None) -> str | None:
    return None


def _said(name: str, value: float | str | None) -> str:
    if value is None:
        return "no limit"
    if name == "kv_share":
        return f"{100 * value:.4g}%"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _effect(picture: Picture, target: str | None, values: Values) -> list[str]:
    changed = limits_of(values)
    if not changed:
        return [NOTHING]
    rows = [row for each in picture.replicas.values() for row in each.rows.values() if row.tenant == target]
    running, waiting = (sum(row.state == state for row in rows) for state in ("running", "waiting"))
    lines = [f"of the rosters that are shown, {running} of its requests run and {waiting} wait"]
    for name, value in changed.items():
        lines.append(f"{name.replace('_', ' ')}: {_said(name, value)}")
    lines.append("other tenants are not touched; nobody who runs is ended")
    return [*lines, *goes_back(values)]


def _unchanged(_picture: Picture, _target: str | None, values: Values) -> bool:
    return not limits_of(values)


TENANT = Action(
    key="T",
    name="tenant",
    title="Limit tenant",
    danger="reversible",
    target="tenant",
    capability="tenants",
    params=(
        *(
            Param(
                name=name,
                kind="limit",
                label=label,
                lowest=lowest,
                highest=highest,
                optional=True,
                hint=hint,
                percent=name == "kv_share",
            )
            for name, (lowest, highest, label, hint) in _NUMBERS.items()
        ),
        Param(
            name="tier",
            kind="choice",
            label="tier",
            default=KEEP,
            choices=(KEEP, "interactive", "batch", LIFT),
        ),
        REVERT_AFTER,
        REASON,
    ),
    build=_build,
    effect=_effect,
    refusal=_refuse,
    unchanged=_unchanged,
    unasked=NOTHING,
    asks=True,
)
