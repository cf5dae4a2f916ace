"""The KV pool drawn block by block: what is free, cached, owned, shared, and whose."""

from collections.abc import Callable
from typing import NamedTuple

from infer_console.state.picture import CACHED, FREE, NO_OWNER, BlockMap, ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import count, size
from infer_console.view.layout import rule
from infer_console.view.look import Look
from infer_console.view.roster import selected_request
from infer_console.view.row import Line, Role, Row

#: Owner classes beside the indexes into ``BlockMap.owners``.
_FREE, _CACHED, _SHARED, _NOBODY = -1, -2, -3, -4
_LENS_WORDS = {"owner": "owner", "sharing": "references", "state": "free, cached, used"}


class Glyph(NamedTuple):
    text: SafeText
    role: Role


FREE_GLYPH = Glyph(safe("·"), "free")
CACHED_GLYPH = Glyph(safe(":"), "cached")
SHARED_GLYPH = Glyph(safe("="), "shared")
SELECTED_GLYPH = Glyph(safe("█"), "selected")
PENDING_GLYPH = Glyph(safe("▓"), "pending")
USED_GLYPH = Glyph(safe("#"), "used")
UNOWNED_GLYPH = Glyph(safe("?"), "text")


def blocks_per_cell(total: int, cells: int) -> int:
    """As few blocks in a cell as make the pool fit; one where there is room."""
    return max(1, -(-total // max(1, cells)))


def block_section(replica: ReplicaPicture, look: Look, width: int, height: int) -> list[Row]:
    """Title with the scale, the map, and the legend when there is room for both."""
    if height <= 0:
        return []
    blocks = replica.blocks
    if blocks is None or blocks.total == 0:
        return [rule(width, "BLOCKS"), Line(width).put(" the block map is not known yet", "dim").row()][
            :height
        ]
    legend = height >= 4
    map_height = height - 1 - (1 if legend else 0)
    per_cell = blocks_per_cell(blocks.total, (width - 1) * map_height)
    rows = [rule(width, "BLOCKS", None, safe(_scale(replica, blocks, per_cell)))]
    rows += map_rows(replica, blocks, look, width, map_height, per_cell)
    if legend:
        rows.append(_legend(look, width))
    return rows[:height]


def _scale(replica: ReplicaPicture, blocks: BlockMap, per_cell: int) -> str:
    tokens = per_cell * blocks.block_size
    text = f"1 cell = {count(per_cell)} blk = {count(tokens)} tok"
    per_token = replica.status.kv.bytes_per_token
    return f"{text} = {size(tokens * per_token)}" if per_token else text


def map_rows(
    replica: ReplicaPicture, blocks: BlockMap, look: Look, width: int, height: int, per_cell: int
) -> list[Row]:
    """The cells, row by row. A cell of several blocks shows the class that holds most of it; the selected
    request is shown wherever it has a block."""
    glyph_of = _glyphs(replica, blocks, look)
    per_row = max(1, width - 1)
    cells = -(-blocks.total // per_cell)
    rows: list[Row] = []
    for first in range(0, min(cells, per_row * height), per_row):
        line = Line(width).put(" ")
        last = min(first + per_row, cells)
        run: list[SafeText] = []
        role: Role = "text"
        for cell in range(first, last):
            glyph = glyph_of(cell * per_cell, min((cell + 1) * per_cell, blocks.total))
            if glyph.role != role and run:
                line.put(safe("".join(run)), role)
                run = []
            role = glyph.role
            run.append(glyph.text)
        line.put(safe("".join(run)), role)
        rows.append(line.row())
    return rows


def _glyphs(replica: ReplicaPicture, blocks: BlockMap, look: Look) -> Callable[[int, int], Glyph]:
    """What to draw for the blocks ``start`` to ``stop``."""
    selected = selected_request(replica, look)
    chosen = blocks.owners.index(selected) if selected in blocks.owners else None
    pending_from = _pending_from(replica, blocks, chosen)
    owner_glyphs = [Glyph(*look.owners.mark(replica.status.id, owner)) for owner in blocks.owners]

    def owner_glyph(kind: int) -> Glyph:
        if kind >= 0:
            return owner_glyphs[kind] if look.lens == "owner" else USED_GLYPH
        return {_FREE: FREE_GLYPH, _CACHED: CACHED_GLYPH, _SHARED: SHARED_GLYPH}.get(kind, UNOWNED_GLYPH)

    def by_owner(start: int, stop: int) -> Glyph:
        if chosen is not None and chosen in blocks.owner[start:stop]:
            last = next(block for block in range(stop - 1, start - 1, -1) if blocks.owner[block] == chosen)
            return PENDING_GLYPH if last >= pending_from else SELECTED_GLYPH
        if _uniform(blocks, start, stop):
            return owner_glyph(_class(blocks, start, look.lens))
        tally: dict[int, int] = {}
        for block in range(start, stop):
            kind = _class(blocks, block, look.lens)
            tally[kind] = tally.get(kind, 0) + 1
        return owner_glyph(max(tally, key=lambda kind: (tally[kind], kind)))

    def by_references(start: int, stop: int) -> Glyph:
        refs = max(blocks.refs[start:stop], default=0)
        if refs > 0:
            text = str(refs) if refs < 10 else "+"
            return Glyph(safe(text), "shared" if refs > 1 else "used")
        return CACHED_GLYPH if CACHED in blocks.kinds[start:stop] else FREE_GLYPH

    return by_references if look.lens == "sharing" else by_owner


def _uniform(blocks: BlockMap, start: int, stop: int) -> bool:
    """Whether all blocks of a cell are alike, as most are; counted without a loop in Python."""
    size = stop - start
    if size == 1:
        return True
    kinds, owners, refs = blocks.kinds[start:stop], blocks.owner[start:stop], blocks.refs[start:stop]
    return kinds.count(kinds[0]) == size == owners.count(owners[0]) and refs.count(refs[0]) == size


def _class(blocks: BlockMap, block: int, lens: str) -> int:
    kind = blocks.kinds[block]
    if kind == FREE:
        return _FREE
    if kind == CACHED:
        return _CACHED
    if lens == "owner" and blocks.refs[block] > 1:
        return _SHARED
    owner = blocks.owner[block]
    return owner if owner != NO_OWNER and owner < len(blocks.owners) else _NOBODY


def _pending_from(replica: ReplicaPicture, blocks: BlockMap, chosen: int | None) -> int:
    """The block from which on the selected request's blocks are drawn as not computed yet.

    Only how many there are is known, not which: the last ones in the pool are taken for them.
    """
    if chosen is None or blocks.block_size <= 0:
        return blocks.total
    row = replica.rows.get(blocks.owners[chosen])
    if row is None or row.phase != "prefill":
        return blocks.total
    mine = [block for block, owner in enumerate(blocks.owner) if owner == chosen]
    computed = -(-row.computed_tokens // blocks.block_size)
    return mine[computed] if computed < len(mine) else blocks.total


def _legend(look: Look, width: int) -> Row:
    line = Line(width).put(" ")
    if look.lens == "sharing":
        line.put("1", "used").put(" one owner ", "dim").put("2-9 +", "shared").put(" that many ", "dim")
    else:
        line.put("█", "selected").put(" selected ", "dim").put("▓", "pending").put(" to compute ", "dim")
        if look.lens == "owner":
            line.put("A-z", "owner0").put(" owner ", "dim").put("=", "shared").put(" shared ", "dim")
        else:
            line.put(USED_GLYPH.text, "used").put(" used ", "dim")
    line.put(":", "cached").put(" cached ", "dim").put("·", "free").put(" free", "dim")
    return line.right(safe(f"v lens: {_LENS_WORDS[look.lens]} "), "dim").row()
