"""What is wrong, and who did what."""

from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen, actions_of
from infer_console.view.doctor_screen import doctor_screen
from infer_console.view.look import Size
from infer_console.view.row import Row


class DoctorScreen(ConsoleScreen):
    name_in_look = "doctor"
    actions = actions_of("doctor")

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return doctor_screen(picture, self.console.look, size, now, self.console.notice)

    def target_replica(self) -> str | None:
        return None

    def action_back(self) -> None:
        if self.console.look.filter:
            self.console.look.filter = ""
            self.paint()
        else:
            self.console.go("fleet")
