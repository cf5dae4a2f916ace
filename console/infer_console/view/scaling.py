"""How many replicas there are, are coming and are called for, in one line."""

from infer_console.diagnosis.unready import of_upstreams
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.format import age
from infer_console.view.proposal import proposed
from infer_console.view.row import Line, Row

#: Replicas that are named one by one.
MOST_NAMES = 3


def coming(picture: Picture) -> list[str]:
    """Replicas on their way to be ready."""
    return [
        name
        for name, replica in picture.replicas.items()
        if replica.status.state in ("starting", "restarting")
    ]


def scaling_line(picture: Picture, width: int) -> Row | None:
    """``SCALE 3 + r7 starting → 9  queue wait …``. None where as many are there or coming as are called for:
    what is already coming is no advice; and how many upstreams there are is not ours to say."""
    scaling = picture.fleet.scaling if picture.fleet is not None else None
    if scaling is None or of_upstreams(picture):
        return None
    starting = coming(picture)
    ready = sum(each.status.state == "ready" for each in picture.replicas.values())
    there = ready + len(starting)
    # The advice is up to 2 s older than the states: fewer are meant of those that it counted.
    if scaling.recommended == there or (scaling.recommended < there and (starting or scaling.ready != ready)):
        return None
    if scaling.recommended < there and proposed(picture, "scale") is not None:
        return None  # the doctor, which sees what is about to happen, asks for more: not both on one screen
    line = Line(width).put(" SCALE ", "label").put(safe(str(ready)), "strong")
    if starting:
        line.put(" + ", "dim").put(_names(starting), "accent").put(" starting", "dim")
        if scaling.boot_s is not None and scaling.boot_measured:
            line.put(safe(f", {age(scaling.boot_s)} each"), "dim")
    more = scaling.recommended > there
    line.put(" → ", "dim").put(safe(str(scaling.recommended)), "warn" if more else "strong")
    return line.put("  ").put(safe(scaling.because, 300), "dim").row()


def _names(starting: list[str]) -> SafeText:
    if len(starting) > MOST_NAMES:
        return safe(str(len(starting)))
    return safe(" ".join(safe_identifier(name) for name in starting))
