"""All actions, for the dialogs, the keys, the help and the command line."""

from infer_console.actions.action import Action
from infer_console.actions.cancel import CANCEL
from infer_console.actions.cancel_where import CANCEL_WHERE
from infer_console.actions.drain import DRAIN, UNDRAIN
from infer_console.actions.fence import FENCE, RELEASE, RESTART
from infer_console.actions.headroom import HEADROOM
from infer_console.actions.limits import LIMITS
from infer_console.actions.preempt import PREEMPT
from infer_console.actions.scale import SCALE
from infer_console.actions.shed import SHED, SHED_OFF
from infer_console.actions.tenant import TENANT
from infer_console.actions.traffic import INJECT, STOP_INJECT

ACTIONS: tuple[Action, ...] = (
    DRAIN,
    UNDRAIN,
    FENCE,
    RELEASE,
    RESTART,
    HEADROOM,
    LIMITS,
    TENANT,
    INJECT,
    STOP_INJECT,
    CANCEL,
    CANCEL_WHERE,
    PREEMPT,
    SHED,
    SHED_OFF,
    SCALE,
)

_BY_NAME = {action.name: action for action in ACTIONS}


def action(name: str) -> Action:
    """Raise KeyError for a name that is none."""
    return _BY_NAME[name]
