"""Replicas to paint: 64 requests that decode, and pools in which blocks change hands; always the same."""

from array import array

from infer_engine.protocol import Kv, Replica, RequestRow

from infer_console.state.picture import FREE, NO_OWNER, USED, BlockMap, ReplicaPicture

REQUESTS = 64
BLOCK_SIZE = 16
#: Blocks that change hands between one frame and the next.
CHANGED_BLOCKS = 16


def batch(frame: int) -> ReplicaPicture:
    """64 running requests; from frame to frame each has a token more and is a quarter of a second older."""
    rows = {row.id: row for row in (_row(number, frame) for number in range(REQUESTS))}
    return ReplicaPicture(status=_status(1024), rows=rows, order=tuple(rows))


def pool(frame: int, total: int) -> ReplicaPicture:
    """A pool of ``total`` blocks, two thirds of it used in runs of 24 by 64 owners; a few blocks change."""
    kinds, owner, refs = bytearray(total), array("H", [NO_OWNER]) * total, array("H", [0]) * total
    for block in range(total):
        run = block // 24
        if run % 3:
            kinds[block], owner[block], refs[block] = USED, run * 7 % REQUESTS, 1
    for number in range(CHANGED_BLOCKS):
        block = (frame * 131 + number * 977) % total
        if kinds[block] == USED:
            kinds[block], owner[block], refs[block] = FREE, NO_OWNER, 0
        else:
            kinds[block], owner[block], refs[block] = USED, (frame + number) % REQUESTS, 1
    rows = {row.id: row for row in (_row(number, 0) for number in range(REQUESTS))}
    blocks = BlockMap(total, BLOCK_SIZE, bytes(kinds), owner, refs, tuple(rows))
    return ReplicaPicture(status=_status(total), rows=rows, order=tuple(rows), blocks=blocks)


def _status(total: int) -> Replica:
    kv = Kv(block_size=BLOCK_SIZE, total=total, used=total // 2, free=total // 2, bytes_per_token=46_080)
    return Replica(id="r0", state="ready", health="ok", running=REQUESTS, waiting=0, kv=kv)


def _row(number: int, frame: int) -> RequestRow:
    generated = 3 * number + frame
    return RequestRow(
        id=f"{0xC0FFEE + 7919 * number:06x}",
        tenant=("acme", "default", "research", "evals")[number % 4],
        tier="interactive" if number % 3 else "batch",
        replica="r0",
        state="running",
        phase="decode",
        prompt_tokens=100 + 37 * number,
        generated_tokens=generated,
        kv_blocks=(100 + 37 * number + generated) // BLOCK_SIZE + 1,
        age_s=number / 2 + frame / 4,
        queue_wait_s=number / 50,
        ttft_s=0.2 + number / 100,
        last_itl_s=0.02 + (number + frame) % 7 / 1000,
        max_tokens=512,
        computed_tokens=100 + 37 * number + generated,
    )
