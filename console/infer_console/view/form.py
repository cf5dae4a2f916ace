"""The editable part of a dialog: fields and buttons, and what keys do to them. Pure state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from infer_engine.durations import show_duration

from infer_console.actions.action import Action
from infer_console.actions.params import NEVER, Given, Param, ParamError, Values, parse_duration

Button = Literal["close", "apply"]
#: Steps of ← and → for durations.
DURATIONS_S = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
RATES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
MAX_TEXT = 256
#: The field that says whether one or all are meant, the parameter that overrides a refusal, and where what
#: confirms is typed.
SCOPE, FORCE, CONFIRM = "scope", "force", "confirm"


@dataclass(slots=True)
class Field:
    """One parameter as it is being edited. ``text`` is what the operator sees and what is parsed."""

    param: Param
    text: str = ""
    ticked: bool = False
    #: The first character typed replaces what stood there.
    fresh: bool = True

    def given(self) -> str | bool | None:
        return self.ticked if self.param.kind == "flag" else self.text

    def type(self, character: str) -> bool:
        """True where the field took the character."""
        if self.param.kind in ("choice", "flag"):
            return False
        if self.param.kind != "text" and character not in "0123456789.%bhms none":
            return False
        self.text = character if self.fresh else (self.text + character)[:MAX_TEXT]
        self.fresh = False
        return True

    def erase(self) -> None:
        if self.param.kind not in ("choice", "flag"):
            self.text = "" if self.fresh and self.param.kind != "text" else self.text[:-1]
            self.fresh = False

    def step(self, by: int) -> None:
        """← and →: the next choice, tick, or round value."""
        match self.param.kind:
            case "choice":
                choices = self.param.choices
                at = choices.index(self.text) if self.text in choices else 0
                self.text = choices[(at + by) % len(choices)]
            case "flag":
                self.ticked = not self.ticked
            case "amount":
                self.text = _step_amount(self.text, by)
            case "duration":
                self.text = self._step_duration(by)
            case "number" if self.param.step is not None:
                self.text = f"{self._bound(_float(self.text) + by * self.param.step):g}"
            case "number":
                self.text = f"{self._bound(_neighbour(RATES, _float(self.text), by)):g}"
            case "text" | "limit":
                return
        self.fresh = True

    def _step_duration(self, by: int) -> str:
        value_s = parse_duration(self.text)
        if value_s is None:
            return show_duration(self._bound(DURATIONS_S[0] if by > 0 else DURATIONS_S[-1]))
        following = _neighbour(DURATIONS_S, value_s, by)
        if self.param.optional and following == value_s:
            return NEVER
        return show_duration(self._bound(following))

    def _bound(self, value: float) -> float:
        return max(self.param.lowest, min(self.param.highest, value))


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _step_amount(text: str, by: int) -> str:
    unit = "b" if text.endswith("b") else "%"
    value = _float(text.removesuffix(unit))
    top = 100.0 if unit == "%" else 1e12
    return f"{max(0.0, min(top, value + by)):g}{unit}"


def _neighbour(ladder: Sequence[float], value: float, by: int) -> float:
    """The next rung above or below ``value``; ``value`` itself at the ends."""
    rungs = [rung for rung in ladder if (rung > value if by > 0 else rung < value)]
    if not rungs:
        return value
    return min(rungs) if by > 0 else max(rungs)


@dataclass(slots=True)
class Form:
    """Fields, then what has to be typed where something has, then the two buttons. ``focus`` counts through
    all of them; it is on Close to begin with, or in the first field of what means nothing without an answer
    there. Enter applies only on Apply, or where the right word was just typed."""

    action: Action
    target: str | None
    fields: list[Field]
    focus: int = 0
    error: ParamError | None = None
    #: What was typed to confirm, and what it has to be; empty where nothing has to.
    typed: str = ""
    word: str = ""
    #: What a key that was of no use would have been good for.
    notice: str = ""
    buttons: tuple[Button, Button] = ("close", "apply")
    #: What is asked for is what there is.
    unchanged: bool = False
    #: The key that opened it, where it takes another action back.
    undone_by: str = ""

    @classmethod
    def of(cls, action: Action, target: str | None, given: Given, scopes: tuple[str, ...] = ()) -> "Form":
        """The form with the parameters' defaults, ``given`` over them.

        ``scopes`` are the target itself and a name for all there are, where an action may be about either.
        """
        fields = [_field(param, given.get(param.name)) for param in action.params]
        if scopes:
            scope = Param(name=SCOPE, kind="choice", label="on", default=scopes[0], choices=scopes)
            fields.insert(len(fields) - 1, _field(scope, None))
        form = cls(action, target, fields)
        if not action.asks:
            form.focus = form.close
        return form

    def undoes(self, key: str) -> None:
        """It was opened by ``key`` to take another action back: everything is filled in, so nothing is
        edited to begin with, and that key confirms as the action's own does."""
        self.undone_by = key
        self.focus = self.close

    @property
    def again(self) -> tuple[str, ...]:
        """The keys that apply where nothing has to be typed."""
        return tuple(dict.fromkeys(key for key in (self.undone_by, self.action.key) if key))

    @property
    def close(self) -> int:
        """Where Close is."""
        return len(self.fields) + 1

    @property
    def focused_field(self) -> Field | None:
        return self.fields[self.focus] if self.focus < len(self.fields) else None

    @property
    def focused_button(self) -> Button | None:
        at = self.focus - self.close
        return self.buttons[at] if at >= 0 else None

    @property
    def confirming(self) -> bool:
        """What confirms is being typed."""
        return self.focus == len(self.fields)

    def move(self, by: int) -> None:
        self.notice = ""
        self.focus = (self.focus + by) % (self.close + len(self.buttons))
        if self.confirming and not self.word:
            self.focus = (self.focus + by) % (self.close + len(self.buttons))

    def given(self) -> dict[str, str | bool | None]:
        return {each.param.name: each.given() for each in self.fields if each.param.name != SCOPE}

    @property
    def current_target(self) -> str | None:
        """The id the form was opened on; None where all are meant."""
        scope = next((each for each in self.fields if each.param.name == SCOPE), None)
        return self.target if scope is None or scope.text == self.target else None

    def key(self, key: str, character: str | None) -> bool:
        """A key that is not for moving about; True where a parameter changed."""
        edited = self.focused_field
        self.notice = ""
        if self._again(character):
            self.notice = f"type {self.word} to confirm"
            return False
        if edited is None:
            self._confirm(key, character)
            return False
        if key in ("left", "right"):
            edited.step(1 if key == "right" else -1)
        elif key == "space" and edited.param.kind in ("choice", "flag"):
            edited.step(1)
        elif key == "backspace":
            edited.erase()
        elif character is None or not character.isprintable() or not edited.type(character):
            return False
        self.error = None
        return True

    def _again(self, character: str | None) -> bool:
        """Whether it is the action's own key, which applies others at once, and no beginning of the word."""
        edited = self.focused_field
        if not self.word or self.typed or (edited is not None and edited.param.kind == "text"):
            return False
        return character in self.again and not self.word.startswith(character or "")

    def _confirm(self, key: str, character: str | None) -> None:
        """On the buttons and where the word is typed."""
        if key in ("left", "right") and not self.confirming:
            self.focus = self.close + (self.focus - self.close + 1) % len(self.buttons)
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif self.word and character is not None and character.isprintable():
            self.focus = len(self.fields)
            self.typed = (self.typed + character)[:MAX_TEXT]

    def takes_text(self) -> bool:
        """Whether a letter would be typed into something."""
        edited = self.focused_field
        return self.confirming or bool(self.word) or (edited is not None and edited.param.kind == "text")

    def values(self) -> Values | None:
        """The parsed parameters; None, and ``error`` set, where one does not fit."""
        try:
            values = self.action.parse(self.given())
        except ParamError as error:
            self.error = error
            return None
        self.error = None
        return values

    def loses_work(self) -> bool:
        """Whether somebody's work is lost by what is asked for."""
        given = self.given()
        return self.action.danger == "destructive" or "cancel" in (
            given.get("mode"),
            given.get("on_deadline"),
        )

    def forced(self) -> bool:
        return self.given().get(FORCE) is True

    def confirmed(self) -> bool:
        return not self.word or self.typed == self.word

    def ask_for(self, count: str) -> None:
        """Say what has to be typed: the count where the action has one, the id where work is lost or a
        refusal is overridden; else the action's own key is enough."""
        self.word = count or ((self.target or "fleet") if self.loses_work() or self.forced() else "")
        if self.confirming and not self.word:
            self.focus = self.close


def _field(param: Param, given: str | bool | None) -> Field:
    value = param.default if given is None else given
    if param.kind == "flag":
        return Field(param, ticked=bool(value))
    return Field(param, text=value if isinstance(value, str) else "")
