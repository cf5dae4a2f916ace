"""An action's dialog: asks the server what would happen, applies what was confirmed, shows how it went.

The dialog holds on to the id it was opened on. Answers come from the collector's thread as messages; one that
belongs to older parameters is dropped.
"""

from concurrent.futures import Future
from typing import NamedTuple

from infer_engine.protocol import CommandResult, Problem
from textual import events
from textual.message import Message
from textual.timer import Timer

from infer_console.actions.action import Action, Undo
from infer_console.actions.changed_by import changed_by
from infer_console.actions.params import Given
from infer_console.actions.preempt import with_replicas
from infer_console.sources.client import actor
from infer_console.state.picture import Picture
from infer_console.ui.ports import Answer
from infer_console.ui.screens.base import ConsoleScreen
from infer_console.ui.screens.overlay import OverlayScreen
from infer_console.view.dialog import Dialog, Prediction, dialog_rows, undo_words
from infer_console.view.form import FORCE, Form
from infer_console.view.look import Size
from infer_console.view.refusal import STALE, problem_lines
from infer_console.view.row import Row

#: A pause in typing after which the server is asked, and how often it is asked again.
ASK_AFTER_S = 0.2
ASK_AGAIN_S = 5.0
#: Rows of a window in which a dialog can show what it will do beside its buttons.
LEAST_HEIGHT = 8


class _Asked(NamedTuple):
    """What an answer belongs to."""

    number: int
    dry_run: bool


class Answered(Message):
    """A command's answer arrived."""

    def __init__(self, asked: _Asked, answer: Answer) -> None:
        super().__init__()
        self.asked = asked
        self.answer = answer


class ActionScreen(OverlayScreen):
    def __init__(
        self,
        below: ConsoleScreen,
        action: Action,
        target: str | None,
        given: Given,
        undoes: Undo | None = None,
        undone_by: str | None = None,
    ) -> None:
        """``undone_by`` is the key that opened it to take another action back, ``undoes``: it confirms
        too."""
        super().__init__(below)
        scopes = ()
        if action.target == "replica or fleet" and target is not None:
            scopes = (target, "all replicas")
        action = with_replicas(action, below.console.collector.picture, target)
        form = Form.of(action, target, given, scopes)
        if undone_by is not None:
            form.undoes(undone_by)
        self.dialog = Dialog(form, Prediction("asking", [], []))
        self._number = 0
        #: Of what the prediction on the screen was made for.
        self._version: str | None = None
        self._version_of: str | None = None
        self._opened_at = below.console.collector.picture.at
        #: Whether the action's state forbids it, as the picture has it; and how many replicas are ready.
        self._forbidden = False
        self._ready: int | None = None
        self._timer: Timer | None = None
        self._asking_again: Timer
        #: What it takes back, and what would take back what was applied.
        self._undoes = undoes
        self._undo: Undo | None = None

    @property
    def form(self) -> Form:
        return self.dialog.form

    def on_mount(self) -> None:
        self._changed()
        self._asking_again = self.set_interval(ASK_AGAIN_S, self.ask)
        super().on_mount()

    def box(self, picture: Picture, size: Size, now: float) -> list[Row]:
        self.dialog.caution = self.form.action.caution(picture)
        if self.dialog.phase == "applied":
            self._verify(picture)
        else:
            self._follow(picture)
            self._compare(picture)
        if self.dialog.prediction.source in ("asking", "screen"):
            self._predict_from_screen(picture)
        return dialog_rows(self.dialog, picture, size.width, size.height, now)

    def _verify(self, picture: Picture) -> None:
        """Whether what was applied has come about, as far as the screen can tell."""
        values = self.form.values()
        if values is not None:
            self.dialog.verdict = self.form.action.verify(picture, self.form.current_target, values)

    def _follow(self, picture: Picture) -> None:
        """When what the action is about comes into another state, what was said of the old one goes: a
        refusal, a prediction."""
        forbidden = self.form.action.refusal(picture, self.form.current_target) is not None
        ready = picture.totals.ready if picture.totals is not None else None
        another = ready != self._ready and self.dialog.prediction.source == "refused"
        self._ready = ready
        if forbidden == self._forbidden and not another:
            return
        self._forbidden = forbidden
        if self.dialog.phase == "failed":
            self.dialog.phase, self.dialog.outcome = "edit", None
        if self.dialog.phase == "edit":
            self._changed()

    # --- keys

    def takes_paste(self) -> bool:
        """Reasons and expressions; what confirms is typed by hand."""
        edited = self.form.focused_field
        return self.dialog.phase in ("edit", "failed") and edited is not None and edited.param.kind == "text"

    def pressed(self, event: events.Key) -> None:
        if self.dialog.phase == "applied" and event.key == "U" and self._undo is not None:
            self.close()
            self.console.acting.undo()
        elif event.key == "escape" or self.dialog.phase == "applied":
            self.close()
        elif self.dialog.phase in ("edit", "failed"):
            self._edited(event)

    def close(self) -> None:
        """What is as it was before is not offered to be taken back again."""
        if self._undoes is not None and self.dialog.phase != "applied" and self.form.unchanged:
            self.console.acting.taken_back(self._undoes)
        super().close()

    def _edited(self, event: events.Key) -> None:
        form = self.form
        match event.key:
            case "down" | "tab":
                form.move(1)
            case "up" | "shift+tab":
                form.move(-1)
            case "enter":
                self._entered()
            case own if own in form.again and not form.takes_text():
                self._apply()
            case _:
                if form.key(event.key, event.character):
                    self.dialog.phase = "edit"
                    self._changed()

    def _compare(self, picture: Picture) -> None:
        """Whether the parameters are what there is already."""
        form = self.form
        error, values = form.error, form.values()
        form.error = error  # said when it is entered, not while it is being typed
        target = form.current_target
        form.unchanged = values is not None and form.action.unchanged(picture, target, values)
        form.ask_for(form.action.count(picture, target, values) if values is not None else "")

    def _entered(self) -> None:
        form = self.form
        self._compare(self.console.collector.picture)
        if form.focused_button == "close":
            self.close()
        elif form.focused_button == "apply" or (form.confirming and form.confirmed()):
            self._apply()
        elif form.values() is not None:
            form.focus = form.close

    # --- asking and applying

    def _changed(self) -> None:
        """The parameters, or what they are about, changed: what the server said is about others."""
        self._number += 1
        self.dialog.prediction = Prediction("asking", [], [])
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(ASK_AFTER_S, self.ask)

    def ask(self) -> None:
        """Ask the server what the command would do."""
        if self.dialog.phase not in ("edit", "failed"):
            return
        self._compare(self.console.collector.picture)
        if self.form.unchanged and self.form.action.unasked:
            self.dialog.prediction = Prediction("nothing", [], [])
            self._predict_from_screen(self.console.collector.picture)
            lines, unasked = self.dialog.prediction.lines, self.form.action.unasked
            if lines[:1] != [unasked]:  # else with what there is now
                self.dialog.prediction.lines = [unasked]
            if self.is_current:
                self.paint()
            return
        self._send(dry_run=True)

    def _apply(self) -> None:
        """Only what was shown is applied: Enter before the prediction came is too early."""
        form = self.form
        if self.dialog.prediction.source == "asking":
            return
        if self.dialog.prediction.source == "nothing":
            self.dialog.phase, self.dialog.outcome = "failed", [form.action.unasked]
            return
        if self.app.size.height < LEAST_HEIGHT:
            self.dialog.phase = "failed"
            self.dialog.outcome = ["this window is too small to show what it would do"]
            return
        picture = self.console.collector.picture
        self._compare(picture)
        if not form.confirmed():
            self.dialog.phase = "failed"
            self.dialog.outcome = [f"it takes effect with {form.word} typed to confirm"]
            return
        refusal = form.action.allowed(picture, form.current_target)
        if refusal is not None:
            self.dialog.phase, self.dialog.outcome = "failed", [refusal]
            return
        values = form.values()
        if values is not None:
            self._undo = form.action.undo(picture, form.current_target, values)
        self._number += 1
        if self._send(dry_run=False):
            self.dialog.phase = "applying"
            self._asking_again.reset()  # a refusal stands for as long as it takes to read it

    def _send(self, dry_run: bool) -> bool:
        values = self.form.values()
        if values is None:
            return False
        target = self.form.current_target
        command = self.form.action.command(target, values, actor=actor(), dry_run=dry_run)
        asked = _Asked(self._number, dry_run)
        # What was shown is what it is for: if somebody changed it since, it is refused.
        version = None if dry_run else self._version
        future = self.console.collector.command(command, target, version)
        future.add_done_callback(lambda done: self._arrived(asked, done))
        return True

    def _arrived(self, asked: _Asked, done: "Future[Answer]") -> None:
        """On the collector's thread."""
        if self.is_running:
            self.post_message(Answered(asked, done.result()))

    def on_answered(self, message: Answered) -> None:
        if message.asked.number != self._number:
            return
        if message.asked.dry_run:
            self._predicted(message.answer)
        else:
            self._applied(message.answer)
        if self.is_current:
            self.paint()

    def _predicted(self, answer: Answer) -> None:
        if isinstance(answer, CommandResult):
            if self.dialog.phase == "failed":  # it would be taken now: the refusal is of the past
                self.dialog.phase, self.dialog.outcome = "edit", None
            self._note_version(answer.resource_version)
            effect = answer.effect
            self.dialog.prediction = Prediction("server", list(effect.summary), list(effect.warnings))
        elif answer.status >= 500:
            self.dialog.prediction = Prediction("screen", [], self._problem_lines(answer))
        else:
            before, lines = self.dialog.prediction, self._problem_lines(answer)
            if before.source == "refused" and self.dialog.outcome == before.lines:
                self.dialog.outcome = lines  # still refused; why may be another by now
            self.dialog.prediction = Prediction("refused", lines, [])

    def _note_version(self, version: str | None) -> None:
        """Of what the prediction that came is made for."""
        target = self.form.current_target
        known = self._version if self._version_of == target else None
        if known is not None and version != known and self.dialog.changed is None:
            self.dialog.changed = "changed since you opened this: the prediction is of what it is now"
        self._version, self._version_of = version, target

    def _conflict(self, problem: Problem) -> None:
        """Somebody was faster: what was shown is no longer true, so it is asked for again at once."""
        picture, target = self.console.collector.picture, self.form.current_target
        who = changed_by(problem, picture, target, self._opened_at)
        self.dialog.changed = f"not applied: {who} changed it since; the prediction is of what it is now"
        self.dialog.phase, self.dialog.outcome = "edit", None
        self._version = None
        self._changed()
        self.ask()

    def _applied(self, answer: Answer) -> None:
        if isinstance(answer, CommandResult):
            self.dialog.phase = "applied"
            self.dialog.operation = answer.operation.id if answer.operation is not None else None
            self.dialog.outcome = list(answer.effect.summary) or ["done"]
            if self._undoes is not None:
                self.console.acting.taken_back(self._undoes)
            if self._undo is not None:
                self.console.acting.remember(self._undo)
                self.dialog.undo = undo_words(self._undo)
        elif answer.code == STALE:
            self._conflict(answer)
        else:
            lines = self._problem_lines(answer)
            self.dialog.phase, self.dialog.outcome = "failed", lines
            if answer.status < 500:
                self.dialog.prediction = Prediction("refused", lines, [])

    def _problem_lines(self, problem: Problem) -> list[str]:
        return problem_lines(problem, forcible=any(each.name == FORCE for each in self.form.action.params))

    def _predict_from_screen(self, picture: Picture) -> None:
        values = self.form.values()
        if values is not None:
            target = self.form.current_target
            self.dialog.prediction.lines = self.form.action.effect(picture, target, values)
