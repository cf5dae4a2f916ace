"""From one fleet of several to another, where a console is connected to several."""

from typing import TYPE_CHECKING

from infer_console.state.picture import Picture
from infer_console.ui.fleets import Fleets
from infer_console.ui.ports import CollectorPort
from infer_console.view.look import OtherFleet

if TYPE_CHECKING:
    from infer_console.ui.app import ConsoleApp

ONE_FLEET = "one fleet; --connect may be given several times"


class FleetSwitch:
    def __init__(self, app: "ConsoleApp", collector: CollectorPort) -> None:
        self._app = app
        self._collector = collector
        self._fleets = collector if isinstance(collector, Fleets) else None

    @property
    def names(self) -> tuple[str, ...]:
        """None where there is but one fleet."""
        return self._fleets.names if self._fleets is not None else ()

    @property
    def name(self) -> str:
        """The one that is shown, as in ``names``."""
        return self._fleets.name if self._fleets is not None else ""

    @property
    def pictures(self) -> list[Picture]:
        """The newest of every fleet."""
        fleets = self._fleets
        return list(fleets.pictures.values()) if fleets is not None else [self._collector.picture]

    def others(self) -> tuple[OtherFleet, ...]:
        return self._fleets.others() if self._fleets is not None else ()

    def open(self) -> None:
        """All of them in a box."""
        if self._fleets is None:
            self._app.say(ONE_FLEET)
        else:
            self._app.overlays.fleets()

    def next(self) -> None:
        fleets = self._fleets
        if fleets is None:
            self._app.say(ONE_FLEET)
        else:
            names = fleets.names
            self.show(names[(names.index(fleets.name) + 1) % len(names)])

    def show(self, name: str) -> None:
        """One of ``names``, from its Fleet screen on: nothing that was selected is in another one."""
        app, fleets = self._app, self._fleets
        if fleets is None or name not in fleets.names or name == fleets.name:
            return
        app.time.resume()
        before = fleets.names.index(fleets.name)
        fleets.show(name)
        app.acting.change_fleet(before, fleets.names.index(name))
        app.alarms.change_fleet()
        app.look.forget_selections()
        app.ask_anew()
        app.go("fleet")
        app.say(f"fleet: {name}")
