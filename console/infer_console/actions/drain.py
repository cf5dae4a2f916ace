"""Drain a replica, and take it back."""

from typing import cast

from infer_engine.durations import show_duration
from infer_engine.protocol import Command, Drain, DrainMode, Undrain

from infer_console.actions.action import REASON, Action, Undo, Verdict, number, text
from infer_console.actions.params import Param, Values
from infer_console.actions.replica_state import no_replica, reached, state_of
from infer_console.state.picture import Picture, ReplicaPicture

MAX_DEADLINE_S = 3600.0

#: ``auto`` leaves it to the server: migrate where another replica can take the work, else wait.
AUTO = "auto"
MODES = (AUTO, "migrate", "wait", "cancel")


def _build_drain(_target: str | None, values: Values) -> Command:
    return Drain(
        mode=None if values.get("mode") == AUTO else cast(DrainMode, text(values, "mode")),
        deadline_s=number(values, "deadline"),
        on_deadline="cancel" if values.get("on_deadline") == "cancel" else "wait",
        force=bool(values.get("force")),
        reason=text(values, "reason"),
    )


def _build_undrain(_target: str | None, values: Values) -> Command:
    return Undrain(reason=text(values, "reason"))


def others_ready(picture: Picture, target: str | None) -> list[str]:
    return [
        name for name, shown in picture.replicas.items() if name != target and shown.status.state == "ready"
    ]


def _refuse_drain(picture: Picture, target: str | None) -> str | None:
    state = state_of(picture, target)
    if state is None:
        return no_replica(target)
    return (
        None
        if state in ("ready", "draining")
        else f"{target} is {state}; only a ready replica can be drained"
    )


def _refuse_undrain(picture: Picture, target: str | None) -> str | None:
    state = state_of(picture, target)
    if state is None:
        return no_replica(target)
    return None if state in ("draining", "drained") else f"{target} is {state}, not draining or drained"


def _drain_effect(picture: Picture, target: str | None, values: Values) -> list[str]:
    shown = picture.replicas.get(target or "")
    if shown is None:
        return [no_replica(target)]
    running, waiting = shown.status.running, shown.status.waiting
    lines = [f"{target} takes no new requests from the next step on"]
    if values.get("mode") == "cancel":
        lines.append(f"{those(running, 'running', 'is', 'are')} cancelled now; clients get an error")
    elif running != 0 and values.get("mode") != "wait" and others_ready(picture, target):
        lines.append(
            f"{those(running, 'running', 'goes', 'go')} on at {', '.join(others_ready(picture, target))}, "
            "as there is room"
        )
    elif running != 0:
        lines.append(f"{those(running, 'running', 'finishes', 'finish')} first{_longest(shown)}")
    others = others_ready(picture, target)
    if waiting != 0 and others:
        lines.append(f"{those(waiting, 'waiting', 'goes', 'go')} to {', '.join(others)}")
    elif waiting != 0:
        lines.append(f"{those(waiting, 'waiting', 'is', 'are')} held: no other replica is ready")
    if not others:
        lines.append(
            "it is the last ready replica: refused unless forced, and then nothing serves new requests"
        )
    deadline_s = number(values, "deadline")
    if values.get("mode") != "cancel":
        then = "cancelled" if values.get("on_deadline") == "cancel" else "waited for all the same"
        lines.append(
            "no deadline" if deadline_s is None else f"what runs after {show_duration(deadline_s)} is {then}"
        )
    if shown.status.kv.used is not None:
        lines.append(f"drained when 0 run and 0 of {shown.status.kv.used:,} used blocks are held")
    return lines


def _undrain_effect(picture: Picture, target: str | None, _values: Values) -> list[str]:
    shown = picture.replicas.get(target or "")
    state = shown.status.state if shown else "unknown"
    return [f"{target} ({state}) takes requests again", "what was cancelled or moved away does not come back"]


def those(count: int | None, which: str, one: str, many: str) -> str:
    """ "1 running request finishes", "3 waiting requests go"."""
    if count is None:
        return f"an unknown number of {which} requests {many}"
    return f"1 {which} request {one}" if count == 1 else f"{count} {which} requests {many}"


def _drained(picture: Picture, target: str | None, _values: Values) -> Verdict | None:
    shown = picture.replicas.get(target or "")
    if shown is None:
        return None
    status = shown.status
    empty = status.running == 0 and not status.kv.used
    known = ("–" if each is None else f"{each:,}" for each in (status.running, status.kv.used))
    words = "{} is {}: {} running, {} blocks held".format(target, status.state, *known)
    return Verdict(status.state == "drained" and empty, words)


def _undo_drain(_picture: Picture, target: str | None, _values: Values) -> Undo | None:
    return Undo("undrain", target, {})


def _undo_undrain(_picture: Picture, target: str | None, _values: Values) -> Undo | None:
    return Undo("drain", target, {})


def _longest(shown: ReplicaPicture) -> str:
    left = [
        row.max_tokens - row.generated_tokens
        for row in shown.rows.values()
        if row.state == "running" and row.max_tokens is not None
    ]
    return f"; the longest has at most {max(left):,} tokens to go" if left else ""


DRAIN = Action(
    key="D",
    name="drain",
    title="Drain",
    danger="reversible",
    target="replica",
    capability="drain",
    params=(
        Param(
            name="mode",
            kind="choice",
            label="mode",
            default=AUTO,
            choices=MODES,
            hint="what happens to those running",
        ),
        Param(
            name="deadline",
            kind="duration",
            label="deadline",
            default="5m",
            highest=MAX_DEADLINE_S,
            optional=True,
            hint="like 30s, 5m or none",
        ),
        Param(
            name="on_deadline",
            kind="choice",
            label="at the deadline",
            default="wait",
            choices=("wait", "cancel"),
        ),
        Param(name="force", kind="flag", label="force", default=False, hint="even the last ready replica"),
        REASON,
    ),
    build=_build_drain,
    effect=_drain_effect,
    refusal=_refuse_drain,
    verify=_drained,
    undo=_undo_drain,
    when_stale=True,
)

UNDRAIN = Action(
    key="U",
    name="undrain",
    title="Undrain",
    danger="safe",
    target="replica",
    capability="undrain",
    params=(REASON,),
    build=_build_undrain,
    effect=_undrain_effect,
    refusal=_refuse_undrain,
    verify=reached("ready"),
    undo=_undo_undrain,
)
