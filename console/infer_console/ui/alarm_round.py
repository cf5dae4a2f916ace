"""From one alarm to the next, each on the replica that it is about."""

from typing import TYPE_CHECKING

from infer_console.ui.screens.base import ConsoleScreen
from infer_console.view.alarms import ordered_alarms
from infer_console.view.order import pane_ids

if TYPE_CHECKING:
    from infer_console.ui.app import ConsoleApp


class AlarmRound:
    def __init__(self, app: "ConsoleApp") -> None:
        self._app = app
        self._at = -1

    def change_fleet(self) -> None:
        """The next is the first again."""
        self._at = -1

    def next(self) -> None:
        app = self._app
        alarms = ordered_alarms(app.shown_picture)
        if not alarms:
            app.say("no alarm")
            return
        self._at = (self._at + 1) % len(alarms)
        alarm = alarms[self._at]
        app.say(f"alarm {self._at + 1} of {len(alarms)}: {alarm.text}")
        if alarm.replica is None:
            return
        if isinstance(app.screen, ConsoleScreen) and app.screen.name_in_look == "replica":
            app.look.replica = alarm.replica
        else:
            ids = pane_ids(app.shown_picture, app.look, "fleet", "replicas")
            app.look.cursor("fleet", "replicas").select(ids, alarm.replica)
            app.look.focus["fleet"] = "replicas"
            app.go("fleet")
        app.frame()
