"""What a block, or a cell of several, looks like through each lens of the block map.

What the server does not tell is hatched; nothing is made up for it.
"""

from collections.abc import Callable
from typing import NamedTuple

from infer_engine.protocol import IDLE_STEPS_S, RequestRow

from infer_console.state.blocks import MAX_REFS
from infer_console.state.picture import CACHED, FREE, USED, BlockMap, ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.look import Lens, Look
from infer_console.view.row import Role, Shown

#: Classes beside the indexes into ``BlockMap.owners``; below the last of them, one for each step of idleness.
_FREE, _CACHED, _SHARED, _NOBODY, _UNTOLD = -1, -2, -3, -4, -5
LENS_WORDS: dict[Lens, Shown] = {
    "owner": "owner",
    "age": "age",
    "sharing": "references",
    "evict": "who goes first",
    "tier": "tier",
    "state": "free, cached, used",
}
#: Ends of the classes of age, in seconds: of owners, and of how long cached blocks have been idle.
AGES_S = IDLE_STEPS_S[1:]


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
UNTOLD_GLYPH = Glyph(safe("╱"), "dim")
AGE_GLYPHS = (
    Glyph(safe("1"), "owner0"),
    Glyph(safe("2"), "owner1"),
    Glyph(safe("3"), "owner2"),
    Glyph(safe("4"), "owner3"),
)
IDLE_GLYPHS = tuple(Glyph(safe(letter), "cached") for letter in "abcd")
EVICT_GLYPHS = (
    Glyph(safe("1"), "warn"),
    Glyph(safe("2"), "cached"),
    Glyph(safe("3"), "cached"),
    Glyph(safe("4"), "cached"),
)
TIER_GLYPHS = {"interactive": Glyph(safe("I"), "owner0"), "batch": Glyph(safe("b"), "owner1")}

#: What to draw for the blocks ``start`` to ``stop``.
Drawn = Callable[[int, int], Glyph]


def glyphs(replica: ReplicaPicture, blocks: BlockMap, look: Look, selected: str | None) -> Drawn:
    """The lens that is chosen. A cell of several blocks shows the class that holds most of it, of references
    the most; the selected request is lit wherever it has a block."""
    chosen = blocks.owners.index(selected) if selected in blocks.owners else None
    match look.lens:
        case "sharing":
            return _lit(_by_references(blocks), blocks, chosen)
        case "evict":
            return _lit(_by_most(_evict_classes(blocks), _evict_glyph), blocks, chosen)
        case "age":
            by_most = _by_owner_fact(replica, blocks, _age_glyph, blocks.idle_steps)
            return _lit(by_most, blocks, chosen)
        case "tier":
            return _lit(_by_owner_fact(replica, blocks, _tier_glyph), blocks, chosen)
        case "owner" | "state":
            return _by_owner(replica, blocks, look, chosen)


def _by_most(classes: list[int], glyph_of: Callable[[int], Glyph]) -> Drawn:
    """``classes``: one for each block; most cells are all of one."""
    known: dict[int, Glyph] = {}

    def drawn(start: int, stop: int) -> Glyph:
        kind = classes[start]
        if stop - start > 1:
            cell = classes[start:stop]
            if cell.count(kind) < len(cell):
                kind = max(set(cell), key=lambda each: (cell.count(each), each))
        glyph = known.get(kind)
        if glyph is None:
            glyph = known[kind] = glyph_of(kind)
        return glyph

    return drawn


def _lit(drawn: Drawn, blocks: BlockMap, chosen: int | None) -> Drawn:
    """Lights the selected request's cells and leaves them their sign."""
    if chosen is None:
        return drawn

    def lit(start: int, stop: int) -> Glyph:
        glyph = drawn(start, stop)
        return glyph._replace(role="selected") if chosen in blocks.owner[start:stop] else glyph

    return lit


def _by_owner(replica: ReplicaPicture, blocks: BlockMap, look: Look, chosen: int | None) -> Drawn:
    pending_from = _pending_from(replica, blocks, chosen)
    owners = [Glyph(*look.owners.mark(replica.status.id, owner)) for owner in blocks.owners]
    with_owners = look.lens == "owner"

    listed, most_refs = len(owners), 1 if with_owners else MAX_REFS
    classes = [
        (_SHARED if refs > most_refs else owner if owner < listed else _NOBODY)
        if kind == USED
        else _CACHED
        if kind == CACHED
        else _FREE
        for kind, owner, refs in zip(blocks.kinds, blocks.owner, blocks.refs, strict=True)
    ]

    def glyph_of(kind: int) -> Glyph:
        if kind >= 0:
            return owners[kind] if with_owners else USED_GLYPH
        return {_FREE: FREE_GLYPH, _CACHED: CACHED_GLYPH, _SHARED: SHARED_GLYPH}.get(kind, UNOWNED_GLYPH)

    by_most = _by_most(classes, glyph_of)

    def drawn(start: int, stop: int) -> Glyph:
        if chosen is not None and chosen in blocks.owner[start:stop]:
            last = next(block for block in range(stop - 1, start - 1, -1) if blocks.owner[block] == chosen)
            return PENDING_GLYPH if last >= pending_from else SELECTED_GLYPH
        return by_most(start, stop)

    return drawn


def _by_references(blocks: BlockMap) -> Drawn:
    def drawn(start: int, stop: int) -> Glyph:
        refs = max(blocks.refs[start:stop], default=0)
        if refs > 0:
            return Glyph(safe(str(refs) if refs < 10 else "+"), "shared" if refs > 1 else "used")
        return CACHED_GLYPH if CACHED in blocks.kinds[start:stop] else FREE_GLYPH

    return drawn


def _by_owner_fact(
    replica: ReplicaPicture,
    blocks: BlockMap,
    glyph_of_row: Callable[[RequestRow], Glyph],
    idle_steps: bytes = b"",
) -> Drawn:
    """A fact about the owner; of a cached block for how long it has been idle, where that is asked for. Of
    owners that are not listed it is not told."""
    facts = [
        glyph_of_row(replica.rows[owner]) if owner in replica.rows else UNTOLD_GLYPH
        for owner in blocks.owners
    ]

    listed, idle = len(facts), idle_steps or bytes(blocks.total)
    classes = [
        (owner if owner < listed else _UNTOLD)
        if kind == USED
        else _UNTOLD - steps
        if kind == CACHED
        else _FREE
        for kind, owner, steps in zip(blocks.kinds, blocks.owner, idle, strict=True)
    ]

    def glyph_of(kind: int) -> Glyph:
        if kind < _UNTOLD:
            return IDLE_GLYPHS[min(_UNTOLD - kind, len(IDLE_GLYPHS)) - 1]
        return facts[kind] if kind >= 0 else FREE_GLYPH if kind == _FREE else UNTOLD_GLYPH

    return _by_most(classes, glyph_of)


def _age_glyph(row: RequestRow) -> Glyph:
    return AGE_GLYPHS[sum(row.age_s >= end_s for end_s in AGES_S)]


def _tier_glyph(row: RequestRow) -> Glyph:
    return TIER_GLYPHS.get(row.tier, UNTOLD_GLYPH)


def _evict_classes(blocks: BlockMap) -> list[int]:
    told = blocks.evict_quarters or bytes(blocks.total)
    return [
        _FREE if kind == FREE else _NOBODY if kind != CACHED else quarter or _UNTOLD
        for kind, quarter in zip(blocks.kinds, told, strict=True)
    ]


def _evict_glyph(kind: int) -> Glyph:
    if kind > 0:
        return EVICT_GLYPHS[min(kind, len(EVICT_GLYPHS)) - 1]
    return {_FREE: FREE_GLYPH, _NOBODY: USED_GLYPH}.get(kind, UNTOLD_GLYPH)


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


Legend = tuple[tuple[Glyph, Shown], ...]
_REST: Legend = ((CACHED_GLYPH, "cached"), (FREE_GLYPH, "free"))


def legend(lens: Lens) -> Legend:
    """The lens' signs with their meaning."""
    match lens:
        case "sharing":
            return (
                (Glyph(safe("1"), "used"), "one owner"),
                (Glyph(safe("2-9 +"), "shared"), "that many"),
                *_REST,
            )
        case "evict":
            return (
                (EVICT_GLYPHS[0], "goes first"),
                (Glyph(safe("2-4"), "cached"), "later"),
                (UNTOLD_GLYPH, "not told"),
                (USED_GLYPH, "held"),
                (FREE_GLYPH, "free"),
            )
        case "age":
            return (
                (AGE_GLYPHS[0], "<10s"),
                (AGE_GLYPHS[1], "<1m"),
                (AGE_GLYPHS[2], "<5m"),
                (AGE_GLYPHS[3], "older"),
                (Glyph(safe("a-d"), "cached"), "so long cached"),
                (UNTOLD_GLYPH, "not told"),
                (FREE_GLYPH, "free"),
            )
        case "tier":
            return (
                (TIER_GLYPHS["interactive"], "interactive"),
                (TIER_GLYPHS["batch"], "batch"),
                (UNTOLD_GLYPH, "not told"),
                (FREE_GLYPH, "free"),
            )
        case "state":
            return ((SELECTED_GLYPH, "selected"), (PENDING_GLYPH, "to compute"), (USED_GLYPH, "used"), *_REST)
        case "owner":
            return (
                (SELECTED_GLYPH, "selected"),
                (PENDING_GLYPH, "to compute"),
                (Glyph(safe("A-z"), "owner0"), "owner"),
                (SHARED_GLYPH, "shared"),
                *_REST,
            )
