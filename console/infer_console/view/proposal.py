"""The doctor's proposal: what to do first, what that would change, and the key that plans it."""

from infer_console.state.finding import Finding
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import safe
from infer_console.view.row import Line, Row


def proposal_row(picture: Picture, width: int, replica: str | None = None) -> Row | None:
    """``doctor: shed batch → 14 that wait get 9,100 blocks (est.)   8: why``: of the first finding that has
    an action, of those that concern ``replica`` where one is given. Of a finding without one, its words.
    None where nothing was found."""
    found = [finding for finding in picture.findings if finding.concerns(replica)]
    if not found:
        return None
    first = next((finding for finding in found if finding.action is not None), found[0])
    line = Line(width).put(" doctor: ", "label")
    if first.action is None:
        line.put(safe(first.words, max(0, line.left - 10)), "text")
        return line.right("8: why ", "key").row()
    # Other keys are about what the cursor is on; a tenant it is on only where requests are listed.
    keys = safe("T: plan " if first.action.name == "tenant" and replica is None else "8: plan ")
    room = max(0, line.left - len(keys) - 2)
    words = safe(first.action.words, room)
    line.put(words, "strong")
    effect = safe(f" → {first.action.effect} (est.)", max(0, room - len(words)))
    return line.put(effect, "text").right(keys, "key").row()


def proposed(picture: Picture, name: str) -> Finding | None:
    """The first finding that proposes this action."""
    return next((each for each in picture.findings if each.action and each.action.name == name), None)
