"""All actions, for the dialogs, the keys, the help and the command line."""

from infer_console.actions.action import Action
from infer_console.actions.cancel import CANCEL
from infer_console.actions.drain import DRAIN, UNDRAIN
from infer_console.actions.headroom import HEADROOM
from infer_console.actions.preempt import PREEMPT
from infer_console.actions.traffic import INJECT, STOP_INJECT

ACTIONS: tuple[Action, ...] = (DRAIN, UNDRAIN, HEADROOM, INJECT, STOP_INJECT, CANCEL, PREEMPT)

_BY_NAME = {action.name: action for action in ACTIONS}


def action(name: str) -> Action:
    """Raise KeyError for a name that is none."""
    return _BY_NAME[name]
