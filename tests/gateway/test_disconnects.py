"""Five of each way to leave; ``tests/soak/disconnects.py`` does as many as it is told."""

from soak.disconnects import CELLS, play, served


async def test_every_way_to_leave_gives_the_blocks_back_within_a_step() -> None:
    async with served() as bench:
        noticed = {cell: await play(bench, cell, 5) for cell in CELLS}
    for cell, steps in noticed.items():
        if cell.how != "slow" and cell.when != "last":
            assert None not in steps, cell
