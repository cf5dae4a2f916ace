"""What is wrong and why, and who did what."""

from infer_console.actions.registry import ACTIONS
from infer_console.state.finding import Finding
from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen, actions_of
from infer_console.view.audit import shown_entries
from infer_console.view.doctor_screen import doctor_screen
from infer_console.view.findings import shown_findings
from infer_console.view.look import Size
from infer_console.view.row import Row


class DoctorScreen(ConsoleScreen):
    name_in_look = "doctor"
    actions = actions_of("doctor")

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return doctor_screen(picture, self.console.look, size, now, self.console.notice)

    def on_screen_resume(self) -> None:
        self.console.collector.watch_audit(True)
        super().on_screen_resume()

    def on_screen_suspend(self) -> None:
        self.console.collector.watch_audit(False)

    def target_replica(self) -> str | None:
        return None

    def action_into(self) -> None:
        """The plan of what a finding proposes; the moment of what the audit tells."""
        cursor = self.focused_cursor()
        if cursor is None or cursor.id is None:
            return
        picture = self.console.shown_picture
        if self.console.look.pane("doctor") == "findings":
            found = shown_findings(picture, self.console.look)
            finding = next((each for each in found if each.id == cursor.id), None)
            if finding is not None:
                self._plan(finding)
            return
        entries = shown_entries(picture, self.console.look)
        entry = next((each for each in entries if str(each.number) == cursor.id), None)
        if entry is not None and entry.at is not None:
            self._jump(entry.at)

    def _plan(self, finding: Finding) -> None:
        proposal = finding.action
        if proposal is None:
            self.console.say("nothing is proposed for it")
            return
        if self.console.look.paused:
            self.console.say("paused: action keys are off; p goes on")
            return
        action = next((each for each in ACTIONS if each.name == proposal.name), None)
        if action is None:
            self.console.say(f"the console has no dialog for it: {proposal.command}")
            return
        known = {param.name for param in action.params}
        given = {name: value for name, value in proposal.params.items() if name in known}
        self.console.acting.open_action(action, proposal.target, given)

    def _jump(self, at: float) -> None:
        """To that moment, on all screens."""
        self.console.looking_back.jump_to(at)
