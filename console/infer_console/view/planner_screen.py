"""The Planner screen: what is asked, what fits, how fast it would be, and beside it what the engine does."""

from infer_console.planning.fields import GPU
from infer_console.planning.kv_grid import block_size_of
from infer_console.planning.live import Live, live_figures
from infer_console.planning.sentence import cut
from infer_console.state.picture import Picture, SentencePicture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.banner import banner
from infer_console.view.frame import bottom_row, whole
from infer_console.view.kv_grid import Asked, kv_grid_rows
from infer_console.view.layout import fill, scrolled
from infer_console.view.look import Look, Size
from infer_console.view.planner_form import PlannerForm
from infer_console.view.planner_rows import (
    decode_section,
    example_section,
    field_rows,
    hint_rows,
    live_section,
    memory_section,
    note_rows,
    prefill_section,
)
from infer_console.view.row import Line, Row, beside
from infer_console.view.vital import fleet_vitals, vital_row

#: From these widths on: fields beside the results; wider fields; what is measured in a column of its own.
BESIDE, WIDE, THREE = 64, 100, 160


def planner_screen(
    picture: Picture,
    look: Look,
    form: PlannerForm,
    size: Size,
    now: float,
    notice: SafeText | None = None,
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells. Nothing here needs an engine."""
    width, height = size
    top = [banner(picture, look, width, now, safe("planner"))]
    if picture.totals is not None:
        top.append(vital_row(fleet_vitals(picture), width))
    bottom = [*hint_rows(form, width), bottom_row(picture, look, "planner", width, now, notice)]
    room = max(0, height - len(top) - len(bottom))
    body = _body(form, live_figures(picture, look.replica), width, room)
    return whole(top, body, bottom, width, height)


def kv_grid_screen(
    picture: Picture,
    look: Look,
    form: PlannerForm,
    found: SentencePicture | None,
    size: Size,
    now: float,
    notice: SafeText | None = None,
) -> list[Row]:
    """The same screen with the KV grid of a sentence in the place of fields and results. ``found`` is what
    the engine made of it, whatever moment is shown."""
    width, height = size
    grid = look.kv_grid
    top = [banner(picture, look, width, now, safe("planner"))]
    if picture.totals is not None:
        top.append(vital_row(fleet_vitals(picture), width))
    unanswered = hint_rows(form, width, 1) if form.error else []
    bottom = [*unanswered, bottom_row(picture, look, "planner", width, now, notice)]
    room = max(0, height - len(top) - len(bottom))
    if form.answer is None:
        return whole(top, [Line(width).put(" no answer yet", "dim").row()], bottom, width, height)
    block_size, told = block_size_of(picture, look.replica)
    mine = found if found is not None and found.text == grid.text else None
    why = mine.message if mine is not None else "no engine is connected whose tokenizer could be asked"
    asked = Asked(
        sentence=cut(grid.text, mine.tokenized if mine is not None else None),
        deployment=form.answer.question.deployment,
        block_size=block_size,
        block_told=told,
        why=why or "the engine's tokenizer is asked",
    )
    return whole(top, kv_grid_rows(grid, asked, width, room), bottom, width, height)


def _body(form: PlannerForm, live: Live, width: int, height: int) -> list[Row]:
    if width < BESIDE:
        fields = min(len(form.fields) + 1, height // 2)
        return field_rows(form, width, fields) + _flow(form, live, width, height - fields, True)
    left = 44 if width >= WIDE else 33
    right = width - left - 2
    asked = field_rows(form, left, height)
    apart = live_section(live, form.answer, left, GPU in form.edited)
    fits = width >= WIDE and len(asked) + len(apart) + 1 <= height
    if fits:
        asked = [*asked, Line(left).row(), *apart]
    if width < THREE:
        return beside(fill(asked, height, left), _flow(form, live, right, height, not fits), left, width)
    middle = (right - 2) * 6 // 10
    results = fill(_theory(form, middle), height, middle)
    last = right - middle - 2
    example = fill(example_section(last), height, last)
    return beside(fill(asked, height, left), beside(results, example, middle, right), left, width)


def _theory(form: PlannerForm, width: int) -> list[Row]:
    if form.answer is None:
        return [Line(width).put(" no answer yet", "dim").row()]
    found = form.answer
    before = [Line(width).put(" △ of what stood there before", "warn").row()] if form.error else []
    sections = [memory_section(found, width), decode_section(found, width), prefill_section(found, width)]
    return [*before, *note_rows(found, width), *(row for section in sections for row in section)]


def _flow(form: PlannerForm, live: Live, width: int, height: int, with_live: bool) -> list[Row]:
    """All results below each other, as far down as they are scrolled."""
    rows = _theory(form, width)
    rows += live_section(live, form.answer, width, GPU in form.edited) if with_live else []
    rows += example_section(width)
    shown, form.scrolled = scrolled(rows, form.scrolled, height, width)
    return shown
