"""Preempt one running request, or move it to another replica."""

import dataclasses

from infer_engine.protocol import Command, Kv, Preempt

from infer_console.actions.action import REASON, Action, text
from infer_console.actions.cancel import find_request
from infer_console.actions.params import Param, Values
from infer_console.state.picture import Picture

#: The choice that is no replica: it goes on where it is. No replica is called that: ids have no blanks.
STAYS = "stays where it is"
#: Replicas to choose from in a dialog; others can be named on the command line.
MOST_CHOICES = 8


def _build(_target: str | None, values: Values) -> Command:
    return Preempt(to=_to(values), reason=text(values, "reason"))


def _to(values: Values) -> str | None:
    given = text(values, "to")
    return None if given in ("", STAYS) else given


def with_replicas(action: Action, picture: Picture, target: str | None) -> Action:
    """The action with the replicas to choose from: those that are ready, those with the most blocks that
    admission could give first. Any other action as it is."""
    row = find_request(picture, target)
    if action.name != PREEMPT.name or row is None:
        return action
    ready = [
        shown.status
        for shown in picture.replicas.values()
        if shown.status.state == "ready" and shown.status.id != row.replica
    ]
    ready.sort(key=lambda status: -_room(status.kv))
    hint = "roomiest first: " + ", ".join(f"{each.id} {_room(each.kv):,} blk" for each in ready[:3])
    choice = Param(
        name="to",
        kind="choice",
        label="goes on",
        default=STAYS,
        choices=(STAYS, *(each.id for each in ready[:MOST_CHOICES])),
        hint=hint if ready else "no other replica is ready",
    )
    params = tuple(choice if param.name == "to" else param for param in action.params)
    return dataclasses.replace(action, params=params)


def _room(kv: Kv) -> int:
    """Blocks that could still be given to interactive requests."""
    return max(0, (kv.admit_limit if kv.admit_limit is not None else kv.total or 0) - (kv.used or 0))


def _refuse(picture: Picture, target: str | None) -> str | None:
    row = find_request(picture, target)
    if row is None:
        return f"request {target} is not there any more"
    return None if row.state == "running" else f"request {target} does not run ({row.state})"


def _effect(picture: Picture, target: str | None, values: Values) -> list[str]:
    row = find_request(picture, target)
    if row is None:
        return [f"request {target} is not there any more"]
    to = _to(values)
    lines = [f"{target} leaves the batch; {row.kv_blocks:,} blocks are free by the next step"]
    if to:
        lines.append(
            f"it goes on at {to}: {row.prompt_tokens + row.generated_tokens:,} tokens are computed again"
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
