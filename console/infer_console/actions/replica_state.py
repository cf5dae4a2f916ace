"""The state of a replica that an action is about: whether it is there, and whether it came where it was to
come."""

from collections.abc import Callable

from infer_console.actions.action import Verdict
from infer_console.actions.params import Values
from infer_console.state.picture import Picture


def state_of(picture: Picture, target: str | None) -> str | None:
    """None where there is no such replica."""
    shown = picture.replicas.get(target or "")
    return None if shown is None else shown.status.state


def no_replica(target: str | None) -> str:
    return f"there is no replica {target}"


def reached(wanted: str) -> Callable[[Picture, str | None, Values], Verdict | None]:
    """An action's ``verify``: the replica is in the state ``wanted``."""

    def verify(picture: Picture, target: str | None, _values: Values) -> Verdict | None:
        state = state_of(picture, target)
        return None if state is None else Verdict(state == wanted, f"{target} is {state}")

    return verify
