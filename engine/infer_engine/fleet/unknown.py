"""Refusals of ids that nothing has: each says which one was given."""

from infer_engine.fleet.generation import Refusal, refuse

#: Characters of what was given that are said back: ids are shorter.
MOST_SHOWN = 64


def unknown_replica(replica: str, *, field: str = "replica") -> Refusal:
    """``field`` names where in the request it was given."""
    return refuse(404, "unknown_replica", "There is no such replica.", _given(replica), field=field)


def unknown_request(request_id: str) -> Refusal:
    """One that ended so long ago that it was forgotten is unknown, too."""
    title = "There is no such request, or no longer."
    return refuse(404, "unknown_request", title, _given(request_id), field="request")


def unknown_operation(operation_id: str) -> Refusal:
    title = "There is no such operation, or no longer."
    return refuse(404, "unknown_operation", title, _given(operation_id), field="operation")


def _given(given: str) -> str:
    """In ASCII and bounded: it may be anybody's text."""
    shown = ascii(given)
    return f"got {shown if len(shown) <= MOST_SHOWN else f'{shown[:MOST_SHOWN]}…'}"
