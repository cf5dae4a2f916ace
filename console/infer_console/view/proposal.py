"""The doctor's proposal: what to do first, what that would change, and the key that plans it."""

from infer_console.actions.registry import ACTIONS
from infer_console.state.finding import Finding, Proposal
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.row import Line, Row

_KEYS = {action.name: action.key for action in ACTIONS if action.key}


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
    keys = _keys_words(first.action)
    room = max(0, line.left - len(keys) - 2)
    words = safe(first.action.words, room)
    line.put(words, "strong")
    effect = safe(f" → {first.action.effect} (est.)", max(0, room - len(words)))
    return line.put(effect, "text").right(keys, "key").row()


def _keys_words(proposal: Proposal) -> SafeText:
    key = _KEYS.get(proposal.name)
    return safe(f"{key}: plan  8: why ") if key else safe("8: why ")


def proposed(picture: Picture, name: str, target: str | None) -> Finding | None:
    """The finding that proposes this action for this target: where its dialog takes its first values from."""
    for finding in picture.findings:
        action = finding.action
        if action is not None and action.name == name and action.target == target:
            return finding
    return None
