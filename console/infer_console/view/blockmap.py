"""The KV pool drawn block by block: what is free, cached, owned, shared, and whose."""

from infer_console.state.picture import BlockMap, ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.format import count, percent, size
from infer_console.view.layout import rule
from infer_console.view.lenses import LENS_WORDS, glyphs, legend
from infer_console.view.look import Look
from infer_console.view.order import owners_in_map
from infer_console.view.roster import selected_request
from infer_console.view.row import Line, Row


def blocks_per_cell(total: int, cells: int) -> int:
    """As few blocks in a cell as make the pool fit; one where there is room."""
    return max(1, -(-total // max(1, cells)))


def block_section(replica: ReplicaPicture, look: Look, width: int, height: int) -> list[Row]:
    """Title with the scale, the map, and the legend when there is room for both."""
    if height <= 0:
        return []
    blocks = replica.blocks
    focused = look.pane("replica") == "blocks"
    if blocks is None or blocks.total == 0:
        return [
            rule(width, "BLOCKS", None, "", focused),
            Line(width).put(_untold(replica), "dim").row(),
        ][:height]
    if focused:
        look.cursor("replica", "blocks").follow(owners_in_map(blocks))
    with_legend = height >= 4
    map_height = height - 1 - (1 if with_legend else 0)
    per_cell = blocks_per_cell(blocks.total, (width - 1) * map_height)
    rows = [rule(width, "BLOCKS", None, safe(_scale(replica, blocks, per_cell)), focused)]
    rows += map_rows(replica, blocks, look, width, map_height, per_cell)
    if with_legend:
        selected = selected_request(replica, look)
        told = focused and selected is not None
        rows.append(_owner_row(replica, blocks, selected, width) if told else _legend(look, width))
    return rows[:height]


def _untold(replica: ReplicaPicture) -> SafeText:
    status = replica.status
    if status.upstream is not None or status.foreign is not None or status.watched_url is not None:
        product = safe(status.upstream or status.foreign or "this server", 24)
        return safe(f" {product} does not tell whose its blocks are")
    return safe(" the block map is not known yet")


def _scale(replica: ReplicaPicture, blocks: BlockMap, per_cell: int) -> str:
    tokens = per_cell * blocks.block_size
    text = f"1 cell = {count(per_cell)} blk = {count(tokens)} tok"
    per_token = replica.status.kv.bytes_per_token
    return f"{text} = {size(tokens * per_token)}" if per_token else text


def map_rows(
    replica: ReplicaPicture, blocks: BlockMap, look: Look, width: int, height: int, per_cell: int
) -> list[Row]:
    """The cells, row by row."""
    glyph_of = glyphs(replica, blocks, look, selected_request(replica, look))
    per_row = max(1, width - 1)
    cells = -(-blocks.total // per_cell)
    rows: list[Row] = []
    for first in range(0, min(cells, per_row * height), per_row):
        line = Line(width).put(" ")
        last = min(first + per_row, cells)
        starts = range(first * per_cell, last * per_cell, per_cell)
        line.put_cells(glyph_of(start, min(start + per_cell, blocks.total)) for start in starts)
        rows.append(line.row())
    return rows


def _owner_row(replica: ReplicaPicture, blocks: BlockMap, selected: str | None, width: int) -> Row:
    """What the request under the map's cursor has, in place of the legend."""
    line = Line(width).put(" ")
    if selected is None or selected not in blocks.owners:
        return line.put("no block of it is shown", "dim").row()
    index = blocks.owners.index(selected)
    mine = blocks.owner.count(index)
    row = replica.rows.get(selected)
    line.put(safe_identifier(selected), "strong").put(" ")
    if row is not None:
        line.put(safe(row.tenant, 12), "dim").put("  ")
    line.put(count(mine)).put(" blk, ", "dim").put(safe(f"{percent(mine / blocks.total)}%"))
    if row is not None and row.kv_blocks > mine:
        # Of a shared block only its first holder is known here.
        line.put(safe(f"; {count(row.kv_blocks - mine)} more shared"), "shared")
    return line.right("j k: owners ", "dim").row()


def _legend(look: Look, width: int) -> Row:
    line = Line(width).put(" ")
    for glyph, word in legend(look.lens):
        line.put(glyph.text, glyph.role).put(" ").put(word, "dim").put(" ")
    return line.right(safe(f"v lens: {LENS_WORDS[look.lens]} "), "dim").row()
