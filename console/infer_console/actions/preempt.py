"""Preempt one running request, or move it to another replica."""

from infer_engine.protocol import Command, Preempt

from infer_console.actions.action import REASON, Action, text
from infer_console.actions.cancel import find_request
from infer_console.actions.params import Param, Values
from infer_console.state.picture import Picture


def _build(_target: str | None, values: Values) -> Command:
    return Preempt(to=text(values, "to") or None, reason=text(values, "reason"))


def _refuse(picture: Picture, target: str | None) -> str | None:
    row = find_request(picture, target)
    if row is None:
        return f"request {target} is not there any more"
    return None if row.state == "running" else f"request {target} does not run ({row.state})"


def _effect(picture: Picture, target: str | None, values: Values) -> list[str]:
    row = find_request(picture, target)
    if row is None:
        return [f"request {target} is not there any more"]
    to = text(values, "to")
    lines = [f"{target} leaves the batch; {row.kv_blocks} blocks are free by the next step"]
    if to:
        lines.append(
            f"it goes on at {to}: {row.prompt_tokens + row.generated_tokens} tokens are computed again"
        )
    else:
        lines.append("it goes on where it is, at the head of its tier")
    return [*lines, "its stream stands still meanwhile; no token is lost"]


PREEMPT = Action(
    key="P",
    name="preempt",
    title="Preempt",
    danger="reversible",
    target="request",
    capability="preempt",
    params=(
        Param(name="to", kind="text", label="to", highest=64, optional=True, hint="a replica to go on at"),
        REASON,
    ),
    build=_build,
    effect=_effect,
    refusal=_refuse,
    asks=True,
)
