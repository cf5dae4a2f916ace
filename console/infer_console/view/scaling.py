"""How many replicas the demand calls for, and why, in one line."""

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import safe
from infer_console.view.row import Line, Row


def scaling_line(picture: Picture, width: int) -> Row | None:
    """None where the server recommends nothing (yet), or just as many as there are."""
    scaling = picture.fleet.scaling if picture.fleet is not None else None
    if scaling is None or scaling.recommended == scaling.ready:
        return None
    more = scaling.recommended > scaling.ready
    line = Line(width).put(" SCALE ", "label").put(safe(f"{scaling.ready} → "), "strong")
    line.put(safe(str(scaling.recommended)), "warn" if more else "strong")
    return line.put("  ").put(safe(scaling.because, 300), "dim").row()
