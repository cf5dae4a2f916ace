"""Pause the batch tier, and let it go on."""

from infer_engine.protocol import Command, Shed

from infer_console.actions.action import REASON, Action, Undo, Verdict, text
from infer_console.actions.params import Values
from infer_console.state.picture import Picture


def is_shed(picture: Picture) -> bool | None:
    """None from a server that does not say."""
    spec = picture.fleet.spec if picture.fleet is not None else None
    return None if spec is None else spec.shed


def _build_on(_target: str | None, values: Values) -> Command:
    return Shed(on=True, reason=text(values, "reason"))


def _build_off(_target: str | None, values: Values) -> Command:
    return Shed(on=False, reason=text(values, "reason"))


def _refuse_on(picture: Picture, _target: str | None) -> str | None:
    return "batch is shed already" if is_shed(picture) else None


def _refuse_off(picture: Picture, _target: str | None) -> str | None:
    return "batch is not shed" if is_shed(picture) is False else None


def _of_batch(picture: Picture, state: str) -> int | None:
    """Batch requests in the rosters that are known; None where none is."""
    known = [each for each in picture.replicas.values() if each.rows]
    if not known:
        return None
    return sum(row.tier == "batch" and row.state == state for each in known for row in each.rows.values())


def _effect_on(picture: Picture, _target: str | None, _values: Values) -> list[str]:
    running = _of_batch(picture, "running")
    seen = f" ({running} in the rosters that are shown)" if running is not None else ""
    return [
        "no batch request is admitted, on any replica",
        f"those that run are preempted and stay queued{seen}; none is lost",
        "interactive requests get their blocks",
    ]


def _effect_off(_picture: Picture, _target: str | None, _values: Values) -> list[str]:
    return ["batch requests are admitted again, up to the batch mark"]


def _verify_on(picture: Picture, _target: str | None, _values: Values) -> Verdict | None:
    return Verdict(is_shed(picture), "batch is shed" if is_shed(picture) else "batch is not shed yet")


def _verify_off(picture: Picture, _target: str | None, _values: Values) -> Verdict | None:
    shed = is_shed(picture)
    return Verdict(None if shed is None else not shed, "batch is still shed" if shed else "batch goes on")


def _undo_on(_picture: Picture, _target: str | None, _values: Values) -> Undo | None:
    return Undo("shed-off", None, {})


def _undo_off(_picture: Picture, _target: str | None, _values: Values) -> Undo | None:
    return Undo("shed", None, {})


SHED = Action(
    key="B",
    name="shed",
    title="Shed batch",
    danger="reversible",
    target="fleet",
    capability="shed",
    params=(REASON,),
    build=_build_on,
    effect=_effect_on,
    refusal=_refuse_on,
    verify=_verify_on,
    undo=_undo_on,
)

SHED_OFF = Action(
    key="B",
    name="shed-off",
    title="Stop shedding",
    danger="reversible",
    target="fleet",
    capability="shed",
    params=(REASON,),
    build=_build_off,
    effect=_effect_off,
    refusal=_refuse_off,
    verify=_verify_off,
    undo=_undo_off,
)
