"""The KV grid of the operator's own sentence: words → tokens → ids → bytes, and their blocks."""

from dataclasses import dataclass, replace
from functools import lru_cache

from infer_engine.planner import Deployment
from infer_engine.protocol import MOST_SENTENCE

from infer_console.planning.facts import Fact, duration, gb
from infer_console.planning.guess import guess_model
from infer_console.planning.kv_grid import MOST_STEPS, DecodeStep, KvGrid
from infer_console.planning.sentence import Sentence
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import UNKNOWN, count
from infer_console.view.kv_columns import grid_rows
from infer_console.view.kv_grid_form import KvGridForm
from infer_console.view.layout import rule, scrolled
from infer_console.view.planner_rows import fact_rows
from infer_console.view.row import Line, Row

_LABEL = 8
#: Cells of a token, at most.
_WIDEST = 16
#: Rows of layers that are kept free for the grid, and steps that are told of, from a height on.
_LEAST_LAYERS = 4
_ROOMY, _STEPS_TOLD = 26, 4
#: From here on a step's figures are told in words.
_WIDE = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """``why`` there are no tokens, where there are none (untrusted text)."""

    sentence: Sentence
    deployment: Deployment
    block_size: int
    #: An engine says so; else it is the default.
    block_told: bool
    why: str = ""


def kv_grid_rows(form: KvGridForm, asked: Asked, width: int, height: int) -> list[Row]:
    """Exactly ``height`` rows."""
    head = [rule(width, "KV GRID", note=safe(str(asked.deployment))), _sentence_row(form, width)]
    sentence = asked.sentence
    if not sentence.words:
        words = "a sentence becomes words, tokens, ids and bytes of KV; at most "
        line = Line(width).put(" ").put(words, "dim").put(count(MOST_SENTENCE), "dim")
        return _scrolled(form, [*head, line.put(" characters", "dim").row()], width, height)
    if not sentence.tokens:
        return _scrolled(form, [*head, *_without_tokens(asked, width)], width, height)
    grid = KvGrid(asked.deployment, len(sentence.tokens), form.steps, asked.block_size)
    head += [_summary(sentence, grid, width), _tokenizer_row(sentence, asked, width)]
    facts = fact_rows(_facts(grid, asked), width)
    steps = _step_rows(grid, width, _STEPS_TOLD if height >= _ROOMY else 1)
    bands = _bands(sentence, asked.block_size, width)
    # The grid stays in sight: what of a long sentence does not fit above it stands below.
    room = height - len(head) - len(facts) - len(steps) - _LEAST_LAYERS - 3
    above, below = _divided(bands, room, width)
    fixed = len(head) + len(above) + len(facts) + len(steps) + bool(below)
    layers = grid_rows(grid, width, max(_LEAST_LAYERS + 2, height - fixed))
    return _scrolled(form, [*head, *above, *facts, *layers, *steps, *below], width, height)


def _scrolled(form: KvGridForm, rows: list[Row], width: int, height: int) -> list[Row]:
    shown, form.scrolled = scrolled(rows, form.scrolled, height, width)
    return shown


def _sentence_row(form: KvGridForm, width: int) -> Row:
    line = Line(width, "cursor" if form.typing else "plain").put("▸" if form.typing else " ", "accent")
    line.put("sentence ", "label")
    told = f"{len(form.text)} of {MOST_SENTENCE}, enter: done " if form.typing else "enter: edit "
    room = max(4, line.left - len(told) - 2)
    text = safe(form.text)
    if len(text) > room:  # where it is typed its end counts, else its beginning
        text = safe("…" + text[len(text) - room + 1 :]) if form.typing else safe(text, room)
    line.put(text, "strong").put("▏" if form.typing else "", "accent")
    return line.right(safe(told), "key").row()


def _without_tokens(asked: Asked, width: int) -> list[Row]:
    """The words are all there is."""
    line = Line(width).put(" ").put(count(len(asked.sentence.words)), "strong").put(" words → tokens ")
    rows = [line.put(UNKNOWN, "warn").put(": ", "dim").put(safe(asked.why), "warn").row()]
    words = Line(width).put(" ").to(_LABEL)
    for each in asked.sentence.words:
        shown = safe(each, _WIDEST)
        if len(shown) + 1 > words.left:
            rows.append(words.row())
            words = Line(width).put(" ").to(_LABEL)
        words.put(shown, "strong").put(" ")
    rows.append(words.row())
    per_token = asked.deployment.model.kv_bytes_per_token
    line = Line(width).put(" each token will take ", "dim").put(count(per_token), "strong").put(" B of KV")
    return [*rows, line.put("; words are not tokens, and are not counted as such", "dim").row()]


def _summary(sentence: Sentence, grid: KvGrid, width: int) -> Row:
    tokens = count(grid.prompt)
    line = Line(width).put(" ").put(count(len(sentence.words)), "strong").put(" words → ")
    line.put(tokens, "strong").put(" tokens → ").put(tokens, "strong").put(" ids → ")
    whole = replace(grid, steps=0)
    line.put(count(whole.kv_bytes), "strong").put(" B of KV")
    return line.put(safe(f"   {grid.prompt / len(sentence.words):.2f} tokens a word"), "dim").row()


def _tokenizer_row(sentence: Sentence, asked: Asked, width: int) -> Row:
    theirs, model = sentence.tokenizer or "", asked.deployment.model
    guessed = guess_model(theirs, model.kv_bytes_per_token)
    line = Line(width)
    if model.name in (theirs, guessed):
        return line.put(" tokens of ", "dim").put(safe(theirs, 40), "dim").row()
    line.put(" △ ", "warn").put("tokens of ", "dim").put(safe(theirs, 40), "strong")
    return line.put("; ", "dim").put(safe(model.name, 40), "dim").put(" may cut otherwise", "dim").row()


@lru_cache(4)
def _bands(sentence: Sentence, block_size: int, width: int) -> list[tuple[int, list[Row]]]:
    """Words, tokens and ids below each other, as many as fit into a row; and how many tokens those are. A
    ``│`` stands where a block begins."""
    tokens = sentence.tokens or ()
    bands: list[tuple[int, list[Row]]] = []
    at = 0
    while at < len(tokens):
        words, names, ids = (
            Line(width).put(" ").put(label, "label").to(_LABEL) for label in ("words", "tokens", "ids")
        )
        first, covered = at, 0
        while at < len(tokens):
            each = tokens[at]
            name = _token(each.text)
            cells = max(len(name), len(str(each.id)))
            if cells + 1 > names.left and at > first:
                break
            mark = "│" if at % block_size == 0 else " "
            column = names.used
            names.put(mark, "mark").put(name, "strong" if each.text is not None else "dim")
            ids.put(mark, "mark").put(safe(str(each.id)))
            if each.begins and each.word is not None:
                words.to(column).put(mark, "mark").put(_word(sentence, at, cells, words.left), "text")
            elif words.used <= column:
                words.to(column).put(mark, "mark")
            for line in (names, ids):
                line.to(column + cells + 1)
            at, covered = at + 1, covered + 1
        known = any(each.word is not None for each in tokens)
        bands.append((covered, [*([words.row()] if known else []), names.row(), ids.row()]))
    return bands


def _word(sentence: Sentence, at: int, cells: int, left: int) -> SafeText:
    """The word that begins with that token, in the room of its tokens."""
    tokens = sentence.tokens or ()
    word = tokens[at].word
    for each in tokens[at + 1 :]:
        if each.word != word:
            break
        cells += 1 + max(len(_token(each.text)), len(str(each.id)))
    return safe(sentence.words[word] if word is not None else "", max(1, min(cells, left)))


def _token(text: str | None) -> SafeText:
    """Blanks are part of tokens, so they have to be seen."""
    return UNKNOWN if text is None else safe(text.replace(" ", "␣"), _WIDEST)


def _divided(bands: list[tuple[int, list[Row]]], room: int, width: int) -> tuple[list[Row], list[Row]]:
    each = len(bands[0][1])
    fit = len(bands) if len(bands) * each <= room else max(1, (room - 1) // each)
    above = [row for _, rows in bands[:fit] for row in rows]
    if fit == len(bands):
        return above, []
    more = sum(tokens for tokens, _ in bands[fit:])
    told = Line(width).to(_LABEL).put(safe(f"… {more:,} more token{'s'[: more > 1]} below the grid"), "dim")
    rest = [rule(width, "MORE TOKENS"), *(row for _, rows in bands[fit:] for row in rows)]
    return [*above, told.row()], rest


def _facts(grid: KvGrid, asked: Asked) -> list[Fact]:
    model = asked.deployment.model
    layer, token = model.kv_bytes_per_token_and_layer, model.kv_bytes_per_token
    tokens = f"{grid.tokens:,} tok"
    free = f"{grid.free_slots} slots of the last one free" if grid.free_slots else "all slots taken"
    unsaid = "" if asked.block_told else "; of the default size, none is told"
    return [
        Fact("one token", f"{token:,} B", f"{model.layers} layers × {layer:,} B"),
        Fact("one layer", f"{grid.layer_bytes:,} B", f"{tokens} × {layer:,} B"),
        Fact(
            "all layers",
            f"{grid.kv_bytes:,} B",
            f"{tokens} × {token:,} B, beside {gb(model.weight_bytes)} of weights",
        ),
        Fact(
            f"blocks of {grid.block_size}",
            f"{grid.blocks:,}",
            f"{grid.held_bytes:,} B held, {free}{unsaid}",
        ),
    ]


def _step_rows(grid: KvGrid, width: int, most: int) -> list[Row]:
    """What prefill and the latest decode steps do."""
    line = Line(width).put(" prefill ", "label").put(count(grid.prompt), "strong")
    line.put(" columns in one pass, floor ").put(safe(duration(grid.prefill_s)), "strong")
    rows = [line.put("; the weights are read once", "dim").row()]
    if not grid.steps:
        return [*rows, Line(width).put(" +", "key").put(" plays a decode step: one column more", "dim").row()]
    for number in range(max(1, grid.steps - most + 1), grid.steps + 1):
        step = grid.step(number)
        line = Line(width).put(" decode ", "label").put(count(number), "strong")
        place = f" into block {step.block}" if width >= _WIDE else f", b{step.block}"
        line.put(safe(f": token {step.column + 1}{place}; reads ")).put(_reads(step, width))
        if number == MOST_STEPS:
            line.put("; no more are played", "warn")
        rows.append(line.row())
    return rows


def _reads(step: DecodeStep, width: int) -> SafeText:
    """``140.0 GB of weights in 10.4 ms + 5,898,240 B of KV in .44 µs: floor 10.4 ms``."""
    weights, kv = gb(step.weight_bytes), f"{step.kv_read_bytes:,} B"
    if width < _WIDE:
        return safe(f"{weights} {duration(step.weights_s)} + KV {kv} {_short(step.kv_s)}")
    parts = f"{weights} of weights in {duration(step.weights_s)} + {kv} of KV in {_short(step.kv_s)}"
    return safe(f"{parts}: floor {duration(step.step_s)}")


def _short(value_s: float) -> str:
    return duration(value_s) if value_s >= 1e-5 else f"{value_s * 1e6:.2g} µs"
