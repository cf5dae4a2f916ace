"""What a watcher asks for: which replicas, which of their parts, how often."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from infer_engine.control.frames import Detail
from infer_engine.control.problems import echo
from infer_engine.fleet.generation import refuse
from infer_engine.fleet.unknown import unknown_replica

SLOWEST_HZ, FASTEST_HZ, DEFAULT_HZ = 0.5, 20.0, 4.0


@dataclass(frozen=True, slots=True)
class Query:
    """``replicas`` None is all of them, those to come included. With ``others`` the status of those that were
    not asked for comes too, without detail."""

    replicas: frozenset[str] | None = None
    others: bool = False
    detail: Detail = field(default_factory=Detail)
    hz: float = DEFAULT_HZ


def parse_query(
    replicas: str | None, detail: str | None, hz: str | None, known: Iterable[str], others: str | None = None
) -> Query:
    """Refusal naming the parameter when one does not fit."""
    asked = None
    if replicas is not None and replicas != "*":
        asked = frozenset(replicas.split(","))
        missing = sorted(asked - set(known))
        if missing:
            raise unknown_replica(missing[0], field="replicas")
    parts = {"roster", "blocks", "steps"} if detail is None else {part for part in detail.split(",") if part}
    wrong = sorted(parts - {"roster", "blocks", "steps"})
    if wrong:
        raise refuse(
            400,
            "invalid_field",
            "detail does not fit.",
            f"allowed are roster, blocks and steps, got {echo(wrong[0])}.",
            field="detail",
        )
    if others not in (None, "status"):
        raise refuse(
            400,
            "invalid_field",
            "others does not fit.",
            f"allowed is status, got {echo(others)}.",
            field="others",
        )
    return Query(
        replicas=asked,
        others=others is not None,
        detail=Detail(roster="roster" in parts, blocks="blocks" in parts, steps="steps" in parts),
        hz=_parse_hz(hz),
    )


def _parse_hz(given: str | None) -> float:
    if given is None:
        return DEFAULT_HZ
    try:
        hz = float(given)
    except ValueError:
        hz = float("nan")
    if not SLOWEST_HZ <= hz <= FASTEST_HZ:
        raise refuse(
            400,
            "invalid_field",
            "hz does not fit.",
            f"must be a number from {SLOWEST_HZ:g} to {FASTEST_HZ:g}, got {echo(given)}.",
            field="hz",
        )
    return hz
