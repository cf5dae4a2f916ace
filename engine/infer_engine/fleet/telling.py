"""Having replicas change their live limits: each does it whole, between two of its steps, or not at all."""

import asyncio
from collections.abc import Mapping
from typing import Any

from infer_engine.fleet.generation import refuse
from infer_engine.fleet.unknown import unknown_replica
from infer_engine.replica.handle import LimitsError, LimitsPendingError, ReplicaHandle
from infer_engine.replica.messages import LimitsSet

#: How long a replica may take to answer: it does so between two steps, and a prefill step can be long.
ANSWER_TIMEOUT_S = 15.0

#: Fields of ``messages.SetLimits`` with their new values.
Changes = dict[str, Any]


def replicas_for(
    handles: Mapping[str, ReplicaHandle], replica: str | None, known_when_loaded: str
) -> list[ReplicaHandle]:
    """Whom a change is for: the one that is named, or all, as far as they have ever loaded. Refusal when
    there is none of that name, or none that has."""
    if replica is not None and replica not in handles:
        raise unknown_replica(replica)
    targets = handles.values() if replica is None else [handles[replica]]
    loaded = [handle for handle in targets if handle.info is not None]
    if not loaded:
        raise refuse(
            409,
            "not_ready",
            "No replica is ready.",
            detail=f"{known_when_loaded} known once it has loaded",
            field="replica",
        )
    return loaded


async def tell_all(
    changes: Mapping[ReplicaHandle, Changes], *, thing: str, reverts: bool = False
) -> dict[str, LimitsSet | None]:
    """Tell each replica its changes, all at once; the answers by replica, None of one that has yet to load
    and will be told then. Refusal 504 when one did not obey, saying which did and what becomes of ``thing``
    (``its mark``) on the others; ``reverts`` when it was to be undone after a while, which then is not.

    It is wanted of all of them before anybody else gets in between, whatever they answer and when: what is
    wanted changes at one moment, that in which the command's version was checked."""
    wanted_before = {handle: dict(handle.wanted_limits) for handle in changes}
    for handle, change in changes.items():
        handle.want(change)
    answers = await asyncio.gather(
        *(_tell(handle, change) for handle, change in changes.items()), return_exceptions=True
    )
    done: dict[str, LimitsSet | None] = {}
    failed: list[str] = []
    for (handle, change), answer in zip(changes.items(), answers, strict=True):
        if isinstance(answer, LimitsPendingError):
            failed.append(
                f"{handle.id}: {answer}; {thing} will move to {_shown(change)} when it answers or has loaded "
                "again"
            )
        elif isinstance(answer, LimitsError):
            _want_again(handle, wanted_before[handle], change)
            failed.append(f"{handle.id}: {answer}; {thing} was not moved")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            done[handle.id] = answer
    if failed:
        if done:
            failed.append(f"moved already: {', '.join(done)}")
        if reverts:
            failed.append("nothing will be moved back by itself")
        raise refuse(504, "replica_unresponsive", "Not every replica obeyed.", detail="; ".join(failed))
    return done


async def _tell(handle: ReplicaHandle, changes: Changes) -> LimitsSet | None:
    """Its answer. One that has not loaded is told when it has."""
    return None if handle.ready is None else await handle.set_limits(changes, ANSWER_TIMEOUT_S)


def _want_again(handle: ReplicaHandle, before: Changes, refused: Changes) -> None:
    """The replica would not have it: what was wanted before is, unless somebody wants another thing now."""
    for name, value in refused.items():
        if not isinstance(value, int) or handle.wanted_limits.get(name) != value:
            continue
        if name in before:
            handle.wanted_limits[name] = before[name]
        else:
            del handle.wanted_limits[name]


def _shown(changes: Changes) -> str:
    if len(changes) == 1:
        value = next(iter(changes.values()))
        if isinstance(value, int):
            return str(value)
    return "what was asked"
