"""Chooses one of several ways to compute the same thing: the first that shows, at start-up, that it can."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Candidate(Generic[T]):
    """``make`` is called only when its turn comes, so it may import what may be missing or slow. It raises
    whatever keeps it from being made."""

    name: str
    make: Callable[[], T]


class Unsuitable(Exception):
    """A candidate cannot do what is asked; ``str()`` says why."""


@dataclass(slots=True, frozen=True)
class Choice(Generic[T]):
    name: str
    made: T
    #: What the check measured of it.
    error: float
    #: Why those before it were not taken.
    refused: dict[str, str] = field(default_factory=dict[str, str])


def choose(
    candidates: Sequence[Candidate[T]], error: Callable[[T], float], tolerance: float
) -> Choice[T] | None:
    """The first candidate that can be made, raises nothing and whose ``error`` is a number up to
    ``tolerance``; None when there is none. Refusals are logged: as a warning where the candidate is wrong or
    breaks, as information where it says itself that it does not fit."""
    refused: dict[str, str] = {}
    for candidate in candidates:
        try:
            made = candidate.make()
            measured = error(made)
        except (Unsuitable, ImportError) as reason:
            refused[candidate.name] = str(reason)
            log.info("%s is not used: %s", candidate.name, reason)
            continue
        except Exception as reason:  # noqa: BLE001 - kernels and their compilers raise anything; it is told
            refused[candidate.name] = f"{type(reason).__name__}: {reason}"
            log.warning("%s is not used: %s", candidate.name, refused[candidate.name])
            continue
        if measured <= tolerance:  # never true of NaN
            return Choice(candidate.name, made, measured, refused)
        refused[candidate.name] = f"its error is {measured:.2g}, allowed is {tolerance:.2g}"
        log.warning("%s is not used: %s", candidate.name, refused[candidate.name])
    return None
