"""A replica that is broken: fence it, release it again, restart it."""

from typing import cast

from infer_engine.durations import show_duration
from infer_engine.protocol import Command, DrainMode, Fence, Release, Restart

from infer_console.actions.action import REASON, Action, Undo, number, text
from infer_console.actions.drain import AUTO, MAX_DEADLINE_S, MODES, others_ready, those
from infer_console.actions.params import Param, Values
from infer_console.actions.replica_state import no_replica, reached, state_of
from infer_console.state.picture import Picture


def _build_fence(_target: str | None, values: Values) -> Command:
    return Fence(
        suspect=bool(values.get("suspect")), force=bool(values.get("force")), reason=text(values, "reason")
    )


def _build_release(_target: str | None, values: Values) -> Command:
    return Release(reason=text(values, "reason"))


def _build_restart(_target: str | None, values: Values) -> Command:
    return Restart(
        mode=None if values.get("mode") == AUTO else cast(DrainMode, text(values, "mode")),
        deadline_s=number(values, "deadline") or 0.0,
        force=bool(values.get("force")),
        reason=text(values, "reason"),
    )


def _refuse_fence(picture: Picture, target: str | None) -> str | None:
    state = state_of(picture, target)
    if state is None:
        return no_replica(target)
    return f"{target} is fenced already" if state == "fenced" else None


def _refuse_release(picture: Picture, target: str | None) -> str | None:
    state = state_of(picture, target)
    if state is None:
        return no_replica(target)
    return None if state == "fenced" else f"{target} is {state}, not fenced"


def _refuse_restart(picture: Picture, target: str | None) -> str | None:
    state = state_of(picture, target)
    if state is None:
        return no_replica(target)
    return f"{target} is fenced; release starts it again" if state == "fenced" else None


def _fence_effect(picture: Picture, target: str | None, values: Values) -> list[str]:
    shown = picture.replicas.get(target or "")
    if shown is None:
        return [no_replica(target)]
    lines = [f"{target} is killed now and not started again before it is released"]
    others = others_ready(picture, target)
    running, waiting = shown.status.running, shown.status.waiting
    if values.get("suspect"):
        lines.append("its output is not trusted: requests that have tokens of it end with an error")
        lines.append("those without any start over")
    elif others:
        lines.append(f"{those(running, 'running', 'goes', 'go')} on at {', '.join(others)}; none breaks")
    if waiting != 0 and others:
        lines.append(f"{those(waiting, 'waiting', 'goes', 'go')} to {', '.join(others)}")
    if not others:
        lines.append("no other replica is ready: what it has waits, and nothing serves new requests")
    return lines


def _release_effect(_picture: Picture, target: str | None, _values: Values) -> list[str]:
    return [f"{target} is started again, on the machine and GPU that it was fenced for"]


def _restart_effect(picture: Picture, target: str | None, values: Values) -> list[str]:
    deadline_s = number(values, "deadline") or 0.0
    others = others_ready(picture, target)
    lines = [f"{target} is drained for at most {show_duration(deadline_s)}, ended, and started again"]
    if others:
        lines.append(f"{', '.join(others)} serve meanwhile")
    else:
        lines.append("it is the last ready replica: refused unless forced, and then nothing serves meanwhile")
    return lines


def _undo_fence(_picture: Picture, target: str | None, _values: Values) -> Undo | None:
    return Undo("release", target, {})


def _undo_release(_picture: Picture, target: str | None, _values: Values) -> Undo | None:
    return Undo("fence", target, {})


_FORCE = Param(name="force", kind="flag", label="force", default=False, hint="even the last ready replica")

FENCE = Action(
    key="F",
    name="fence",
    title="Fence",
    danger="destructive",
    target="replica",
    capability="fence",
    params=(
        Param(
            name="suspect",
            kind="flag",
            label="suspect output",
            default=False,
            hint="end what has tokens of it instead of going on from them",
        ),
        _FORCE,
        REASON,
    ),
    build=_build_fence,
    effect=_fence_effect,
    refusal=_refuse_fence,
    verify=reached("fenced"),
    undo=_undo_fence,
    when_stale=True,
)

RELEASE = Action(
    key="F",
    name="release",
    title="Release",
    danger="reversible",
    target="replica",
    capability="release",
    params=(REASON,),
    build=_build_release,
    effect=_release_effect,
    refusal=_refuse_release,
    verify=reached("ready"),
    undo=_undo_release,
)

RESTART = Action(
    key="",
    name="restart",
    title="Restart",
    danger="reversible",
    target="replica",
    capability="restart",
    params=(
        Param(name="mode", kind="choice", label="mode", default=AUTO, choices=MODES),
        Param(
            name="deadline",
            kind="duration",
            label="deadline",
            default="1m",
            highest=MAX_DEADLINE_S,
            hint="then what it still has goes on as after a crash",
        ),
        _FORCE,
        REASON,
    ),
    build=_build_restart,
    effect=_restart_effect,
    refusal=_refuse_restart,
)
