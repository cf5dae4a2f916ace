"""The picker of event kinds: which of them the lists show."""

from collections import Counter

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import safe
from infer_console.view.box import box, titled
from infer_console.view.events import WORDS
from infer_console.view.format import count
from infer_console.view.look import Look
from infer_console.view.row import Line, Row

KINDS: tuple[str, ...] = tuple(WORDS)
_MEANINGS: dict[str, str] = {
    "admit": "into the batch",
    "finish": "ended, and how",
    "preempt": "its blocks taken, goes on later",
    "cache_evict": "a cached prefix reused",
    "move": "to another replica, or back",
    "reject": "turned away at the door",
    "replica": "a replica changed its state",
    "operation": "what operators did",
    "traffic": "test traffic",
}
WIDTH = 60


def kind_rows(picture: Picture, look: Look, at: int, width: int, height: int) -> list[Row]:
    """A framed box; ``at`` is the kind under the cursor."""
    outer = max(24, min(WIDTH, width - 2))
    inner = outer - 4
    seen = Counter(event.kind for event in picture.events)
    body: list[Row] = []
    for number, kind in enumerate(KINDS):
        word, role = WORDS[kind]
        shown = kind not in look.hidden_kinds
        line = Line(inner, "dialog").put("▸ " if number == at else "  ", "accent")
        line.put("[x] " if shown else "[ ] ", "strong" if shown else "dim").put(word, role).to(15)
        many = count(seen[kind])
        line.to(22 - len(many)).put(many).put("  ").put(safe(_MEANINGS.get(kind, "")), "dim")
        body.append(line.row())
    keys = Line(inner, "dialog").put("space", "key").put(" on or off  ", "dim").put("a", "key")
    keys.put(" all  ", "dim").put("n", "key").put(" none  ", "dim").put("esc", "key").put(" closes", "dim")
    body.append(keys.row())
    return box(titled(outer, "Kinds of events"), body)[:height]
