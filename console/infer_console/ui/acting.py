"""What the operator does: an action's plan is opened on what is selected, and what was done is remembered so
that it can be taken back."""

import dataclasses
from collections import deque
from typing import TYPE_CHECKING

from infer_console.actions import registry
from infer_console.actions.action import Action, Undo, read_only_words
from infer_console.actions.opening import given_now, is_out, switched
from infer_console.actions.params import Given
from infer_console.ui.screens.action import ActionScreen
from infer_console.ui.screens.base import ConsoleScreen
from infer_console.view.proposal import proposed

if TYPE_CHECKING:
    from infer_console.ui.app import ConsoleApp

MOST_UNDOS = 16


class Acting:
    def __init__(self, app: "ConsoleApp") -> None:
        self._app = app
        #: What would take back what was done from here, the newest last.
        self.undos: deque[Undo] = deque(maxlen=MOST_UNDOS)
        #: Of the fleets that are not shown, by their place.
        self._undos_of: dict[int, deque[Undo]] = {}

    def act(self, name: str, replica: str | None, request: str | None, tenant: str | None = None) -> None:
        """Open an action's dialog on the id that is selected now."""
        below = self._app.screen
        if not isinstance(below, ConsoleScreen):
            return
        if self._app.look.paused:
            replayed = "this is a recording: action keys are off"
            self._app.say(replayed if self._app.time.is_replay else "paused: action keys are off; p goes on")
            return
        picture = self._app.collector.picture
        if picture.read_only:
            self.say_off(name)
            return
        action = registry.action(switched(name, picture, replica))
        if action.name == "undrain" and self.undos and not is_out(picture, replica):
            self.undo()
            return
        chosen = {"replica": replica, "replica or fleet": replica, "request": request, "tenant": tenant}
        target = chosen.get(action.target)
        finding = proposed(picture, action.name) if action.target == "tenant" and target is None else None
        if finding is not None and finding.action is not None:
            self.open_action(action, finding.action.target, dict(finding.action.params))
            return
        if target is None and action.target != "fleet":
            kind = action.target.partition(" ")[0]
            why = " (it may just have ended)" if kind == "request" else ""
            self._app.say(f"no {kind} is selected{why}; j and k move the cursor")
            return
        self.open_action(action, target, given_now(action.name, picture, target))

    def say_off(self, name: str) -> None:
        """Why that does nothing, before anything is asked of what is selected."""
        self._app.say(f"{name} is off: {read_only_words(self._app.collector.picture)}")

    def undo(self) -> None:
        """The plan of what takes the last action of this console back. It can be opened again until it is
        applied, unless nothing is left to take back."""
        if not self.undos:
            self._app.say("nothing was done from here that can be taken back")
            return
        undo, picture = self.undos[-1], self._app.collector.picture
        action = registry.action(undo.action)
        if action.refusal(picture, undo.target) is not None:
            self.undos.pop()  # said below; the one before it is next
        again = self._app.look.keymap.get("undrain", ("U",))
        self.open_action(action, undo.target, undo.given, undoes=undo, undone_by=again[0])

    def remember(self, undo: Undo) -> None:
        self.undos.append(undo)

    def taken_back(self, undo: Undo) -> None:
        """It was applied, or somebody else did it."""
        if undo in self.undos:
            self.undos.remove(undo)

    def change_fleet(self, before: int, now: int) -> None:
        """What was done in one fleet is not taken back in another."""
        self._undos_of[before] = self.undos
        self.undos = self._undos_of.get(now, deque(maxlen=MOST_UNDOS))

    def open_action(
        self,
        action: Action,
        target: str | None,
        given: Given,
        *,
        undoes: Undo | None = None,
        undone_by: str | None = None,
    ) -> None:
        """An action's dialog, or why there is none now. ``undoes`` is what it would take back, and
        ``undone_by`` the key that opened it then."""
        below = self._app.screen
        if not isinstance(below, ConsoleScreen):
            return
        picture = self._app.collector.picture
        refusal = action.allowed(picture, target)
        if refusal is not None:
            self._app.say(refusal)
            return
        own = self._app.look.keymap.get(action.name)
        if own and action.key:
            action = dataclasses.replace(action, key=own[0])
        self._app.push_screen(ActionScreen(below, action, target, given, undoes, undone_by))
