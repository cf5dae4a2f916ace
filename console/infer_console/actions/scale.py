"""How many replicas there are to be."""

from infer_engine.protocol import Command, Scale

from infer_console.actions.action import REASON, Action, Undo, Verdict, number, text, whole
from infer_console.actions.params import Param, Values
from infer_console.state.picture import Picture

#: As the server's settings bound it.
MOST_REPLICAS = 1000
MAX_DEADLINE_S = 3600.0


def present_replicas(picture: Picture) -> int | None:
    """How many are wanted now; None from a server that does not say."""
    spec = picture.fleet.spec if picture.fleet is not None else None
    return None if spec is None else spec.replicas


def _build(_target: str | None, values: Values) -> Command:
    return Scale(
        replicas=whole(values, "replicas") or 0,
        deadline_s=number(values, "deadline") or 0.0,
        force=bool(values.get("force")),
        reason=text(values, "reason"),
    )


def _refuse(picture: Picture, _target: str | None) -> str | None:
    return None if picture.replicas else "there is no replica"


def _fewer(picture: Picture, values: Values) -> int:
    now, wanted = present_replicas(picture), whole(values, "replicas")
    return max(0, now - wanted) if now is not None and wanted is not None else 0


def _effect(picture: Picture, _target: str | None, values: Values) -> list[str]:
    now, wanted = present_replicas(picture), whole(values, "replicas")
    if wanted is None:
        return []
    if now is None:
        return [f"{wanted} replicas are wanted from now on"]
    if wanted == now:
        return [f"{now} replicas are wanted already: nothing changes"]
    if wanted > now:
        return [f"{wanted - now} more are started; each takes requests once it is loaded"]
    return [
        f"{now - wanted} are drained and ended, one after another, those that serve the least first",
        "what they run goes on at the others; no stream breaks",
    ]


def _unchanged(picture: Picture, _target: str | None, values: Values) -> bool:
    return present_replicas(picture) is not None and present_replicas(picture) == whole(values, "replicas")


def _count(picture: Picture, _target: str | None, values: Values) -> str:
    """Ending replicas wants the new number typed once more."""
    return str(whole(values, "replicas")) if _fewer(picture, values) else ""


def _verify(picture: Picture, _target: str | None, values: Values) -> Verdict | None:
    wanted = whole(values, "replicas")
    states = [each.status.state for each in picture.replicas.values() if each.status.state != "fenced"]
    ready = sum(state == "ready" for state in states)
    return Verdict(ready == len(states) == wanted, f"{ready} of {wanted} ready, {len(states)} there")


def _undo(picture: Picture, _target: str | None, _values: Values) -> Undo | None:
    now = present_replicas(picture)
    return None if now is None else Undo("scale", None, {"replicas": str(now)})


SCALE = Action(
    key="S",
    name="scale",
    title="Scale",
    danger="reversible",
    target="fleet",
    capability="scale",
    params=(
        Param(
            name="replicas",
            kind="number",
            label="replicas",
            lowest=0,
            highest=MOST_REPLICAS,
            step=1,
            hint="beside those that are fenced",
        ),
        Param(
            name="deadline",
            kind="duration",
            label="drain for",
            default="5m",
            highest=MAX_DEADLINE_S,
            hint="then what one still has goes on as after a crash",
        ),
        Param(name="force", kind="flag", label="force", default=False, hint="even below one ready replica"),
        REASON,
    ),
    build=_build,
    effect=_effect,
    refusal=_refuse,
    unchanged=_unchanged,
    count=_count,
    verify=_verify,
    undo=_undo,
    asks=True,
)
