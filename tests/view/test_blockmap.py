"""The block map adds up to the pool, cell for cell."""

import dataclasses

import msgspec
import pytest
from infer_console.state.picture import ReplicaPicture
from infer_console.terminal.plain_ascii import plain_ascii
from infer_console.view.blockmap import block_section, blocks_per_cell, map_rows
from infer_console.view.lenses import legend
from infer_console.view.look import LENSES, Lens, Look
from infer_console.view.row import plain
from support import pictures


def replica_with(rows: list[msgspec.Struct], total: int, cached: int, shared: int) -> ReplicaPicture:
    picked = [row for row in rows if isinstance(row, type(pictures.ROSTER[0]))]
    status = pictures.replica(
        "r0", len(picked), 0, pictures.kv(sum(row.kv_blocks for row in picked), cached, total)
    )
    ids = {row.id: row for row in picked}
    return ReplicaPicture(status, ids, tuple(ids), pictures.block_map(picked, total, cached, shared=shared))


def cells(replica: ReplicaPicture, look: Look, width: int, height: int) -> str:
    blocks = replica.blocks
    assert blocks is not None
    look.owners.update("r0", list(replica.order))
    look.cursor("replica", "roster").follow(list(replica.order))
    per_cell = blocks_per_cell(blocks.total, (width - 1) * height)
    return "".join(plain(row)[1:] for row in map_rows(replica, blocks, look, width, height, per_cell))


def two_requests() -> ReplicaPicture:
    first = pictures.running("a", "t", 40, 0, 99, 3, 1.0, phase="prefill", computed_tokens=17)
    second = pictures.running("b", "t", 50, 14, 99, 4, 1.0)
    return replica_with([first, second], 20, 2, shared=0)


def test_one_cell_a_block_adds_up() -> None:
    shown = cells(two_requests(), Look(replica="r0"), 21, 1)
    assert shown == "██▓BBBB::" + "·" * 11
    assert len(shown) == 20


def test_selection_moves_the_light() -> None:
    look = Look(replica="r0")
    look.cursor("replica", "roster").select(["a", "b"], "b")
    assert cells(two_requests(), look, 21, 1) == "AAA████::" + "·" * 11


def test_shared_blocks_have_their_own_sign_and_lens() -> None:
    replica = two_requests()
    assert replica.blocks is not None
    replica.blocks.refs[3] = 2
    look = Look(replica="r0")
    assert cells(replica, look, 21, 1).startswith("██▓=BBB::")
    look.lens = "sharing"
    assert cells(replica, look, 21, 1) == "1112111::" + "·" * 11
    look.lens = "state"
    assert cells(replica, look, 21, 1) == "██▓####::" + "·" * 11


def test_cells_of_several_blocks_are_counted_in_the_title() -> None:
    replica = pictures.incident().replicas["r2"]
    look = Look(replica="r2")
    rows = [plain(row) for row in block_section(replica, look, 70, 10)]
    assert "1 cell = 56 blk = 896 tok = 294 MB" in rows[0]
    total = sum(len(row) - 1 for row in rows[1:-1])
    assert total == -(-pictures.TOTAL // 56)


def test_a_cell_shows_its_largest_owner_and_always_the_selected_one() -> None:
    rows = [
        pictures.running(name, "t", 16 * size, 0, 9, size, 1.0)
        for name, size in (("a", 1), ("b", 6), ("c", 8))
    ]
    replica = replica_with(list(rows), 16, 0, shared=0)
    look = Look(replica="r0")
    assert cells(replica, look, 3, 1) == "█C"
    look.cursor("replica", "roster").select(["a", "b", "c"], "c")
    assert cells(replica, look, 3, 1) == "██"


def test_an_unknown_map_says_so() -> None:
    replica = dataclasses.replace(two_requests(), blocks=None)
    assert "not known yet" in plain(block_section(replica, Look(replica="r0"), 60, 6)[1])


def test_a_block_without_an_owner_we_know_is_a_question() -> None:
    replica = two_requests()
    assert replica.blocks is not None
    replica.blocks.owner[6] = 0xFFFF
    assert cells(replica, Look(replica="r0"), 21, 1).startswith("██▓BBB?::")


def test_what_goes_first_and_what_is_not_told() -> None:
    replica = two_requests()
    assert replica.blocks is not None
    look = Look(replica="r0", lens="evict")
    assert cells(replica, look, 21, 1) == "#######╱╱" + "·" * 11
    told = dataclasses.replace(replica.blocks, evict_quarters=bytes([0] * 7 + [3, 1] + [0] * 11))
    assert cells(dataclasses.replace(replica, blocks=told), look, 21, 1) == "#######31" + "·" * 11


def test_a_cell_of_several_shows_the_age_that_most_of_it_has() -> None:
    replica = replica_with([], 12, 12, shared=0)
    assert replica.blocks is not None
    idle = dataclasses.replace(replica.blocks, idle_steps=bytes([1] * 4 + [1, 2, 2, 2] + [0, 0, 0, 4]))
    (row,) = map_rows(dataclasses.replace(replica, blocks=idle), idle, Look(lens="age"), 4, 1, 4)
    assert plain(row) == " ab╱"


def test_age_and_tier_are_their_owners_and_of_cached_blocks_not_told() -> None:
    first = pictures.running("a", "t", 40, 0, 99, 3, 5.0)
    second = pictures.running("b", "t", 50, 14, 99, 4, 400.0, tier="batch")
    replica = replica_with([first, second], 20, 2, shared=0)
    assert cells(replica, Look(replica="r0", lens="age"), 21, 1) == "1114444╱╱" + "·" * 11
    assert cells(replica, Look(replica="r0", lens="tier"), 21, 1) == "IIIbbbb╱╱" + "·" * 11
    assert replica.blocks is not None
    idle = dataclasses.replace(replica.blocks, idle_steps=bytes([0] * 7 + [1, 4] + [0] * 11))
    told = dataclasses.replace(replica, blocks=idle)
    assert cells(told, Look(replica="r0", lens="age"), 21, 1) == "1114444ad" + "·" * 11
    assert cells(told, Look(replica="r0", lens="tier"), 21, 1) == "IIIbbbb╱╱" + "·" * 11
    unlisted = dataclasses.replace(replica, rows={"a": first}, order=("a",))
    assert cells(unlisted, Look(replica="r0", lens="tier"), 21, 1) == "III╱╱╱╱╱╱" + "·" * 11


def test_the_selected_request_is_lit_through_every_lens() -> None:
    replica = two_requests()
    blocks = replica.blocks
    assert blocks is not None
    for lens in LENSES:
        look = Look(replica="r0", lens=lens)
        look.owners.update("r0", list(replica.order))
        look.cursor("replica", "roster").select(["a", "b"], "b")
        (row,) = map_rows(replica, blocks, look, 21, 1, 1)
        lit = "".join(span.text for span in row if span.role == "selected")
        assert len(lit) == 4, lens


@pytest.mark.parametrize("lens", LENSES)
def test_signs_of_a_lens_are_told_apart_without_colours_and_in_ascii(lens: Lens) -> None:
    signs = [glyph.text for glyph, _ in legend(lens)]
    assert len({plain_ascii(sign) for sign in signs}) == len(signs)
