"""An action's dialog: the target, the numbers as they are, the parameters, what it will do, and how it went.

Text of users never stands here: next to the verb is only the id that the dialog was opened on.
"""

import textwrap
from dataclasses import dataclass
from typing import Literal

from infer_engine.protocol import Operation

from infer_console.actions.action import Undo, Verdict
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.box import box, titled
from infer_console.view.form import Field, Form
from infer_console.view.operations import operation_row
from infer_console.view.row import Line, Role, Row, Shown, with_tone
from infer_console.view.target_numbers import target_row

WIDTH = 84
_LABEL = 20

Source = Literal["asking", "screen", "server", "refused", "nothing"]
Phase = Literal["edit", "applying", "applied", "failed"]
_SOURCES: dict[Source, tuple[Shown, Role]] = {
    "asking": ("asking the server …; from what is on the screen:", "dim"),
    "screen": ("from what is on the screen (the server did not say):", "warn"),
    "server": ("the server's prediction:", "ok"),
    "refused": ("the server would refuse:", "crit"),
    "nothing": ("nothing to predict:", "dim"),
}
_DANGERS: dict[str, tuple[Shown, Role]] = {
    "safe": (" safe ", "ok"),
    "reversible": (" reversible ", "accent"),
    "destructive": (" loses work ", "crit"),
    "forced": (" overrides a refusal ", "crit"),
}


@dataclass(slots=True)
class Prediction:
    source: Source
    lines: list[str]
    warnings: list[str]


@dataclass(slots=True)
class Dialog:
    """All that a dialog shows. ``outcome`` are the server's words after it was applied."""

    form: Form
    prediction: Prediction
    phase: Phase = "edit"
    outcome: list[str] | None = None
    operation: str | None = None
    caution: str | None = None
    #: What happened to the thing while this was open.
    changed: str | None = None
    #: Whether what was asked for is seen on the screen, once it was applied.
    verdict: Verdict | None = None
    #: What U would do, in words.
    undo: SafeText | None = None


def dialog_rows(dialog: Dialog, picture: Picture, width: int, height: int, now: float) -> list[Row]:
    """A framed box of at most ``height`` rows. Where room is short, the fields that are not edited give way
    to what the action will do, then the numbers, then the end of the prediction; buttons never."""
    outer = max(20, min(WIDTH, width - 2))
    inner = outer - 4
    if dialog.form.unchanged and dialog.phase == "edit":
        notice = [Line(inner, "dialog").put("no change: these values are what there is", "warn").row()]
    else:
        notice = []
    if dialog.changed is not None and dialog.phase != "applied":
        notice += _wrapped(dialog.changed, inner, "△ ", "warn")
    if dialog.form.notice and dialog.form.word and dialog.phase in ("edit", "failed"):
        notice.append(Line(inner, "dialog").put(safe(dialog.form.notice, 60), "warn").row())
    head = [target_row(picture, dialog.form.action.target, dialog.form.current_target, inner)]
    if dialog.caution:
        head.append(Line(inner, "dialog").put("△ ", "warn").put(safe(dialog.caution), "warn").row())
    head.append(_blank(inner))
    fields = _field_rows(dialog, inner) if dialog.phase in ("edit", "failed") else []
    foot = [*notice, *_foot(dialog, picture, inner, now)]
    middle = _prediction_rows(dialog, inner) if _predicts(dialog) else []
    inside = max(0, height - 2)
    if len(head) + len(fields) + len(middle) + len(foot) > inside:
        head, fields, middle = head[:-1], _edited_row(dialog, inner), middle[:-1]
    room = inside - len(fields) - len(foot)
    head = head[: max(0, room - len(middle))]
    room = max(0, room - len(head))
    if len(middle) > room:
        middle = [*middle[: max(0, room - 1)], Line(inner, "dialog").put("…", "dim").row()][:room]
    body = [*head, *fields, *middle, *foot][-inside:] if inside else []
    return box(_title(dialog.form, picture, outer), body)


def _predicts(dialog: Dialog) -> bool:
    """What was refused is not also foretold to be."""
    if dialog.phase == "failed" and dialog.prediction.source == "refused":
        return dialog.prediction.lines != dialog.outcome
    return dialog.phase != "applied"


def _title(form: Form, picture: Picture, outer: int) -> Line:
    """What the verb is, what it is about, and how dangerous it is."""
    line = titled(outer, safe(form.action.title), _on(form, picture))
    kind = "destructive" if form.loses_work() else "forced" if form.forced() else form.action.danger
    danger, role = _DANGERS[kind]
    return line.to(outer - len(danger) - 2, "─", "rule").put(danger, role)


def _on(form: Form, picture: Picture) -> SafeText:
    """What the verb is about."""
    if form.current_target is not None:
        return safe(f" {safe_identifier(form.current_target)}")
    if form.action.target == "fleet":
        return safe(": the whole fleet")
    return safe(f": all {len(picture.replicas)} replicas")


def _blank(inner: int) -> Row:
    return Line(inner, "dialog").row()


def _field_rows(dialog: Dialog, inner: int) -> list[Row]:
    form = dialog.form
    rows = [
        row
        for index, field in enumerate(form.fields)
        for row in _field_row(field, index == form.focus, inner)
    ]
    if form.word:
        rows.append(_confirm_row(form, inner))
    if form.error is not None:
        rows += _wrapped(str(form.error), inner, "▲ ", "crit")
    return [*rows, _blank(inner)]


def _confirm_row(form: Form, inner: int) -> Row:
    """What has to be typed, and what was."""
    line = Line(inner, "dialog").put(
        "▸ " if form.confirming else "! ", "accent" if form.confirming else "crit"
    )
    line.put(safe(f"type {safe_identifier(form.word)}", _LABEL - 3), "warn").to(_LABEL)
    line.put(safe(f" {form.typed}{'▏' if form.confirming else ' '} "), "strong", "field")
    return line.put(" ✓" if form.confirmed() else " to confirm", "ok" if form.confirmed() else "dim").row()


def _edited_row(dialog: Dialog, inner: int) -> list[Row]:
    """The field under the cursor alone, and what has to be typed, for a window without room for all."""
    form = dialog.form
    if dialog.phase not in ("edit", "failed"):
        return []
    field = form.focused_field
    rows = _field_row(field, True, inner)[:1] if field is not None else []
    return [*rows, _confirm_row(form, inner)] if form.word else rows


def _field_row(field: Field, focused: bool, inner: int) -> list[Row]:
    """The field; its hint beside it, or under it where that would cut it."""
    param = field.param
    line = Line(inner, "dialog").put("▸ " if focused else "  ", "accent")
    line.put(safe(param.label, _LABEL - 3), "strong" if focused else "text").to(_LABEL)
    match param.kind:
        case "choice":
            shown = safe(f"‹ {field.text} ›")
        case "flag":
            shown = safe("[x]" if field.ticked else "[ ]")
        case _:
            shown = safe(f" {safe(field.text, 40)}{'▏' if focused else ' '}")
    line.put(shown, "strong", "field" if focused else "dialog").put("  ")
    if param.choice_hints:
        line.put(safe(param.choice_hints.get(field.text, "")), "dim")
    elif param.kind == "choice":
        line.put(safe(" or ".join(param.choices)), "dim").put("  " if param.hint else "")
    if len(param.hint) <= line.left:
        return [line.put(safe(param.hint), "dim").row()]
    pieces = textwrap.wrap(safe(param.hint), max(8, inner - _LABEL))
    under = [Line(inner, "dialog").to(_LABEL).put(safe(piece), "dim").row() for piece in pieces]
    return [line.row(), *under]


def _prediction_rows(dialog: Dialog, inner: int) -> list[Row]:
    words, role = _SOURCES[dialog.prediction.source]
    rows = [Line(inner, "dialog").put(words, role).row()]
    for text in dialog.prediction.lines:
        rows += _wrapped(text, inner, "· ", "text")
    for text in dialog.prediction.warnings:
        rows += _wrapped(text, inner, "△ ", "warn")
    return [*rows, _blank(inner)]


def _wrapped(text: str, inner: int, bullet: Shown, role: Role) -> list[Row]:
    pieces = textwrap.wrap(safe(text, 1000), max(8, inner - 2)) or [""]
    return [
        Line(inner, "dialog").put(bullet if index == 0 else "  ", role).put(safe(piece), role).row()
        for index, piece in enumerate(pieces[:6])
    ]


def _foot(dialog: Dialog, picture: Picture, inner: int, now: float) -> list[Row]:
    match dialog.phase:
        case "edit":
            return [_buttons(dialog, inner), _keys(dialog, inner)]
        case "applying":
            return [Line(inner, "dialog").put("applying …", "accent").row()]
        case "failed":
            return [
                *_outcome_rows(dialog, inner, "▲ ", "crit"),
                _buttons(dialog, inner),
                _keys(dialog, inner),
            ]
        case "applied":
            operation = _operation(dialog, picture)
            done = _has_come_about(dialog, operation)
            rows = _outcome_rows(dialog, inner, "✓ " if done else "· ", "ok" if done else "text")
            if not done:
                rows.insert(0, Line(inner, "dialog").put("✓ accepted; to come:", "ok").row())
            if operation is not None:
                rows.append(with_tone(operation_row(operation, inner, now), "dialog"))
            if dialog.verdict is not None:
                rows.append(_verdict_row(dialog.verdict, inner))
            return [*rows, _blank(inner), _leaving(dialog, inner)]


def _has_come_about(dialog: Dialog, operation: Operation | None) -> bool:
    """What the server foresaw is ticked once the operation has succeeded and the screen has it too."""
    if dialog.verdict is not None and not dialog.verdict.done:
        return False
    if operation is None:  # of old, it is no longer told
        return dialog.operation is None or dialog.verdict is not None
    return operation.phase == "succeeded"


def _verdict_row(verdict: Verdict, inner: int) -> Row:
    """Whether it has come about, as the screen has it."""
    line = Line(inner, "dialog").put("✓ seen: " if verdict.done else "… ", "ok" if verdict.done else "warn")
    return line.put(safe(verdict.words, 200), "text").row()


def _leaving(dialog: Dialog, inner: int) -> Row:
    line = Line(inner, "dialog")
    if dialog.undo is not None:
        line.put("U", "act").put(" undo: ", "dim").put(dialog.undo).put("   ")
    return line.put("any other key closes; it goes on by itself", "dim").row()


def _outcome_rows(dialog: Dialog, inner: int, bullet: Shown, role: Role) -> list[Row]:
    rows: list[Row] = []
    for text in dialog.outcome or []:
        rows += _wrapped(text, inner, bullet, role)
    return rows


def _operation(dialog: Dialog, picture: Picture) -> Operation | None:
    return next((one for one in picture.operations if one.id == dialog.operation), None)


def _buttons(dialog: Dialog, inner: int) -> Row:
    form = dialog.form
    target = form.current_target
    verb = safe(f" {form.action.title} {safe_identifier(target)} " if target else f" {form.action.title} ")
    line = Line(inner, "dialog").to(max(0, inner - len(verb) - 17))
    for button in form.buttons:
        on = form.focused_button == button
        text: SafeText = safe(" Close ") if button == "close" else verb
        role: Role = "dim" if button == "apply" and not form.confirmed() else "strong" if on else "text"
        line.put("▸" if on else " ", "accent").put("[", "rule").put(text, role, "field" if on else "dialog")
        line.put("]", "rule").put("  ")
    return line.row()


def _keys(dialog: Dialog, inner: int) -> Row:
    line, form = Line(inner, "dialog"), dialog.form
    if form.word:
        line.put(safe(form.word, 20), "act").put(" and ", "dim").put("enter", "key").put(" applies   ", "dim")
    elif form.again and not form.takes_text():
        line.put(safe(" or ".join(form.again)), "act").put(" again applies   ", "dim")
    if form.focused_field is not None:
        line.put("enter", "key").put(" to Close   ", "dim")
    line.put("↑↓", "key").put(" field   ", "dim").put("←→", "key").put(" change   ", "dim")
    return line.put("esc", "key").put(" closes", "dim").row()


def undo_words(undo: Undo) -> SafeText:
    """``headroom r2 30b``, ``shed off``: as the command line takes it."""
    given = (value for value in undo.given.values() if isinstance(value, str))
    return safe(
        " ".join([undo.action.replace("-", " "), *([undo.target] if undo.target else []), *given]), 60
    )


def question_rows(title: Shown, lines: list[SafeText], yes: Shown, no: Shown, width: int) -> list[Row]:
    """A small box that asks for one key."""
    outer = max(20, min(WIDTH, width - 2))
    inner = outer - 4
    body = [_blank(inner), *(Line(inner, "dialog").put(text).row() for text in lines), _blank(inner)]
    body.append(Line(inner, "dialog").put(yes, "act").put("    ").put(no, "key").row())
    return box(titled(outer, title), body)
