"""The sections of the Planner screen, each a list of rows of any width."""

import textwrap
from typing import NamedTuple

from infer_console.planning.answer import Answer, Decode, price_per_million
from infer_console.planning.example import CONTEXT, EXAMPLE, worked_example
from infer_console.planning.facts import (
    Fact,
    bound_facts,
    duration,
    exact,
    fill_words,
    gb,
    memory_facts,
    money,
    prefill_facts,
    rate,
)
from infer_console.planning.live import Live
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.form import Field
from infer_console.view.format import UNKNOWN, count
from infer_console.view.gauge import ADMIT_MARK, BATCH_MARK
from infer_console.view.layout import rule, window
from infer_console.view.planner_form import PlannerForm, shown_when_empty
from infer_console.view.row import Line, Role, Row, Shown
from infer_console.view.table import Cell, Column, fit_columns, head_row, item_row

_LABEL, _VALUE = 17, 12
#: Where the quoted figures end.
_QUOTED = 31
#: Cells of a field's name.
_FIELD = 18


def field_rows(form: PlannerForm, width: int, height: int) -> list[Row]:
    """The fields around the one under the cursor."""
    rows = [rule(width, "ASKED")]
    for index in window(len(form.fields), height - 1, form.focus):
        rows.append(_field_row(form, form.fields[index], index == form.focus, width))
    return rows[: max(0, height)]


def _field_row(form: PlannerForm, field: Field, focused: bool, width: int) -> Row:
    line = Line(width, "cursor" if focused else "plain").put("▸" if focused else " ", "accent")
    line.put(safe(field.param.label), "strong" if focused else "label").to(min(_FIELD, width * 3 // 5))
    if field.param.kind == "choice":
        gap = " " if len(field.text) + 4 <= line.left else ""
        chosen = safe(field.text, max(1, line.left - 2 * len(gap) - 2))
        return line.put(f"‹{gap}", "dim").put(chosen, "strong").put(f"{gap}›", "dim").row()
    text = safe(field.text)
    room = line.left - 1
    if len(text) > room > 1:  # of a path its end tells more
        text = safe("…" + text[len(text) - room + 1 :])
    if not text and not focused:
        return line.put(safe(shown_when_empty(form, field.param.name)) or UNKNOWN, "dim").row()
    return line.put(text, "strong").put("▏" if focused else "", "accent").row()


def hint_rows(form: PlannerForm, width: int, most: int = 3) -> list[Row]:
    """Why there is no answer to what stands there, or what the field under the cursor is."""
    if form.error:
        pieces = textwrap.wrap(safe(form.error, 1000), max(8, width - 4))[:most]
        return [
            Line(width).put(" ▲ " if index == 0 else "   ", "crit").put(safe(piece), "crit").row()
            for index, piece in enumerate(pieces)
        ]
    line = Line(width).put(" ")
    if form.reading:
        return [line.put("reading ", "accent").put(safe(form.wanted_path), "dim").row()]
    line.put(safe(form.focused.param.hint), "dim")
    keys = {"choice": "←→ choose", "text": "type; esc leaves the field"}
    return [line.right(safe(keys.get(form.focused.param.kind, "type digits or ←→") + " "), "key").row()]


def memory_section(answer: Answer, width: int) -> list[Row]:
    rows = [rule(width, "MEMORY", note=safe(str(answer.question.deployment))), _bar(answer, width)]
    return rows + fact_rows(memory_facts(answer), width)


def _bar(answer: Answer, width: int) -> Row:
    """Weights ``█``, workspace ``▒``, what is left for KV ``·`` with both marks."""
    line = Line(width).put(" ")
    cells = width - 4
    if not answer.fits or cells < 8:
        return line.put("the model does not fit" if not answer.fits else "", "crit").row()
    one = answer.question.deployment
    weights = max(1, round(one.model.weight_bytes / one.memory_bytes * cells))
    work = round(one.activation_bytes / one.memory_bytes * cells)
    left = max(1, cells - weights - work)
    line.put(safe("█" * weights), "used").put(safe("▒" * work), "cached")
    marks = sorted(((answer.question.batch_mark, BATCH_MARK), (answer.question.admit_mark, ADMIT_MARK)))
    position = 0
    for ratio, glyph in marks:
        stop = round(ratio * left)
        line.put(safe("·" * (stop - position)), "free").put(safe(glyph), "mark")
        position = stop
    return line.put(safe("·" * (left - position)), "free").row()


def decode_section(answer: Answer, width: int) -> list[Row]:
    rows = [rule(width, "DECODE", note="floors; no real system reaches them")]
    if not answer.decode:
        return [*rows, Line(width).put(" not one sequence of this context fits", "warn").row()]
    fitted = fit_columns(_COLUMNS, width - 1)
    rows.append(head_row(fitted, width, 1))
    rows += [item_row(fitted, each, width, Line(width).put(" ")) for each in answer.decode]
    return rows + fact_rows(bound_facts(answer), width)


def _cell(text: str, role: Role = "text") -> Cell:
    return Cell(safe(text), role)


def _short_duration(value_s: float) -> str:
    """In at most seven cells."""
    shown = duration(value_s)
    if len(shown) <= 7 or value_s >= 1:
        return shown
    return f"{value_s * 1e3:.2f} ms" if value_s >= 9.5e-6 else "<.01 ms"


def _total(value: float, cells: int) -> str:
    """``147,000``, or ``13.0M`` where all digits are more than ``cells``."""
    shown = f"{value:,.0f}"
    return shown if len(shown) <= cells or value < 1e6 else f"{value / 1e6:,.1f}M"


def _fill(decode: Decode) -> str:
    """Whole percents where a tenth would cut the word."""
    words = fill_words(decode)
    return words if len(words) <= _FILL_CELLS or decode.fill == "full" else fill_words(decode, digits=2)


_FILL_CELLS = 14
_COLUMNS: tuple[Column[Decode], ...] = (
    Column("KV IN USE", _FILL_CELLS, lambda each: _cell(_fill(each), "label"), left=True),
    Column("SEQ", 5, lambda each: _cell(f"{each.sequences:,}", "strong")),
    Column("KV READ", 10, lambda each: _cell(gb(each.kv_read_bytes)), need=3),
    Column("STEP", 7, lambda each: _cell(_short_duration(each.step_s), "strong"), grows=3),
    Column("TOK/S EACH", 10, lambda each: _cell(rate(each.tokens_per_s_per_sequence)), need=2),
    Column("TOK/S", 7, lambda each: _cell(_total(each.tokens_per_s, 7)), grows=3),
    Column("1M TOK", 6, lambda each: _cell(money(each.price_per_million_tokens)), need=1, grows=4),
)


def prefill_section(answer: Answer, width: int) -> list[Row]:
    return [rule(width, "PREFILL"), *fact_rows(prefill_facts(answer), width)]


def fact_rows(facts: list[Fact], width: int) -> list[Row]:
    """A row each; a note that does not fit goes under its value."""
    rows: list[Row] = []
    for each in facts:
        role: Role = "warn" if each.warn else "strong"
        line = Line(width).put(" ").put(safe(each.label), "label").to(_LABEL)
        line.to(_LABEL + _VALUE - len(each.value)).put(safe(each.value), role)
        noted: Role = "warn" if each.warn else "dim"
        if len(each.note) + 2 <= line.left:
            rows.append(line.put("  ").put(safe(each.note), noted).row())
            continue
        rows.append(line.row())
        rows += [
            Line(width).put("   ").put(safe(piece), noted).row()
            for piece in textwrap.wrap(safe(each.note), max(8, width - 4))
        ]
    return rows


class _Beside(NamedTuple):
    """A figure of the engine, and the theory's."""

    label: Shown
    live: SafeText
    theory: SafeText


def live_section(live: Live, answer: Answer | None, width: int, gpu_chosen: bool = False) -> list[Row]:
    """What is measured, beside what theory says of the model and the GPUs that are asked for."""
    where = safe_identifier(live.replica) if live.replica is not None else safe("fleet")
    note = safe(f"{'SIMULATED ' if live.simulated else ''}{live.model or '–'}", max(1, width - 20))
    rows = [rule(width, "LIVE", where, note)]
    wide = max(10, min(14, (width - _LABEL) // 2 - 1))
    head = Line(width).to(_LABEL + wide - 8).put("measured", "label")
    rows.append(head.to(_LABEL + 2 * wide - 5).put("theory", "label").row())
    for each in _beside(live, answer, not _incomparable(live, answer, gpu_chosen)):
        line = Line(width).put(" ").put(each.label, "label").to(_LABEL)
        line.to(_LABEL + wide - len(each.live)).put(each.live, "dim" if each.live == UNKNOWN else "strong")
        line.to(_LABEL + 2 * wide + 1 - len(each.theory)).put(each.theory)
        rows.append(line.row())
    apart = _incomparable(live, answer, gpu_chosen)
    if apart:
        pieces = textwrap.wrap(safe(apart, 200), max(8, width - 4))
        return rows + [
            Line(width).put(" △ " if index == 0 else "   ", "warn").put(safe(piece), "warn").row()
            for index, piece in enumerate(pieces)
        ]
    return [*rows, Line(width).put(" theory's times are of the batch that runs", "dim").row()]


def _incomparable(live: Live, answer: Answer | None, gpu_chosen: bool) -> str:
    """Why theory's times are not of what is measured; empty where they are, or there is nothing to
    compare."""
    if answer is None or not live.copies:
        return ""
    asked = answer.question.deployment
    if not live.is_of(answer):
        return f"not the model or KV type asked for ({asked.model.name}): no times to compare"
    if live.gpu is not None and live.gpu != asked.gpu.name:
        return f"not of this hardware: it runs on {live.gpu}, {asked.gpu.name} is asked for"
    if live.gpu is None and not gpu_chosen:
        return f"not of this hardware ({live.device or 'not told'}): choose a GPU to compare with"
    return ""


def _beside(live: Live, answer: Answer | None, comparable: bool) -> list[_Beside]:
    copies = live.copies
    floor_s = live.floor_s(answer) if answer is not None and comparable else None
    per_s = live.running / floor_s if live.running and floor_s is not None else None
    context = live.kv_used_tokens / live.running if live.kv_used_tokens and live.running else None
    full = answer.decode_at("admit mark") if answer is not None else None
    question = answer.question if answer is not None else None
    token_bytes = question.deployment.model.kv_bytes_per_token if question is not None else None
    budget = answer.kv_budget_bytes * copies if answer is not None and answer.fits and copies else None
    price = live.price_per_million(answer) if answer is not None and comparable else None
    return [
        _Beside("KV per token", _bytes(live.kv_bytes_per_token), _bytes(token_bytes)),
        _Beside("KV pool", _gb(live.kv_pool_bytes), _gb(budget))
        if live.kv_bytes_per_token is not None or live.kv_pool_tokens is None
        # Servers that are not ours tell blocks, and not what one takes.
        else _Beside("KV pool", token_words(live.kv_pool_tokens), token_words(_per(budget, token_bytes))),
        _Beside("running", count(live.running), count(full.sequences * copies if full and copies else None)),
        _Beside("KV per sequence", token_words(context), token_words(question.context if question else None)),
        _Beside("decode step", _duration(live.decode_step_s), _duration(floor_s)),
        _Beside("ITL p50", _duration(live.itl_p50_s), _duration(floor_s)),
        _Beside("tokens/s", count(live.tokens_per_s), count(per_s)),
        _Beside("1M tokens cost", safe(money(price)), safe(money(_at_floor(answer, per_s, copies)))),
    ]


def _per(total_bytes: float | None, token_bytes: int | None) -> float | None:
    return total_bytes / token_bytes if total_bytes is not None and token_bytes else None


def _at_floor(answer: Answer | None, per_s: float | None, copies: int | None) -> float | None:
    return price_per_million(answer.question, per_s, copies or 1) if answer is not None else None


def _bytes(value: int | None) -> SafeText:
    return UNKNOWN if value is None else safe(f"{value:,} B")


def _gb(value: int | None) -> SafeText:
    return UNKNOWN if value is None else safe(gb(value))


#: Of a number of tokens in a column: more would run into the column before it.
MOST_DIGITS = 7


def token_words(value: float | None) -> SafeText:
    return UNKNOWN if value is None else safe(f"{_total(value, MOST_DIGITS)} tok")


def _duration(value_s: float | None) -> SafeText:
    return UNKNOWN if value_s is None else safe(duration(value_s))


def example_section(width: int) -> list[Row]:
    """What people quote of the worked example, and what it is exactly."""
    rows = [rule(width, "WORKED EXAMPLE", note=safe(f"{EXAMPLE}, {CONTEXT:,} tok"))]
    rows.append(
        Line(width).to(_QUOTED - 6).put("quoted", "label").to(_QUOTED + 2).put("exactly", "label").row()
    )
    for each in worked_example():
        line = Line(width).put(" ").put(safe(each.what), "label")
        line.to(_QUOTED - len(each.rounded)).put(safe(each.rounded), "dim")
        rows.append(line.to(_QUOTED + 2).put(safe(exact(each)), "strong").row())
    return rows


def note_rows(answer: Answer, width: int) -> list[Row]:
    """What of the model's file was estimated, or is not counted."""
    rows: list[Row] = []
    for text in answer.question.notes:
        for index, piece in enumerate(textwrap.wrap(safe(text, 400), max(8, width - 4))):
            rows.append(
                Line(width).put(" △ " if index == 0 else "   ", "warn").put(safe(piece), "warn").row()
            )
    return rows
