"""Which requests to list where not all can be: those that have been here for longest."""

from collections.abc import Iterable
from typing import cast

from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import RequestState


def oldest(
    live: Iterable[Tracked], limit: int, replica: str | None = None, state: RequestState | None = None
) -> tuple[list[Tracked], dict[RequestState, int]]:
    """Of ``live`` requests in the order of their arrival at most ``limit``: the oldest of those that wait,
    then the oldest of those that run, and how many more there are of each. Where both need more, each has
    half of the room."""
    waiting: list[Tracked] = []
    running: list[Tracked] = []
    for request in live:
        if (replica is None or request.generation.replica == replica) and state in (None, request.state):
            (running if request.state == "running" else waiting).append(request)
    first = waiting[: max(limit // 2, limit - len(running))]
    second = running[: limit - len(first)]
    return [*first, *second], rest(waiting=len(waiting) - len(first), running=len(running) - len(second))


def rest(**more: int) -> dict[RequestState, int]:
    """By state, where any are left."""
    return {cast("RequestState", state): count for state, count in more.items() if count > 0}
