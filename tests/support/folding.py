"""A recording folded at once, for tests that want to know where it leads."""

from collections.abc import Iterable

from infer_console.state.fold import ConsoleState
from infer_engine.protocol import Envelope


def fold_all(state: ConsoleState, envelopes: Iterable[Envelope], until_at: float | None = None) -> int:
    """Fold a recording's messages up to a moment (Unix seconds) as if they came now; returns how many. Those
    of chains with gaps are left out until the next chain begins."""
    folded, whole = 0, True
    for envelope in envelopes:
        if until_at is not None and envelope.at > until_at:
            break
        if envelope.prev == 0:
            state.opened()
            whole = True
        if whole:
            whole = state.fold(envelope, envelope.at)
            folded += whole
    return folded
