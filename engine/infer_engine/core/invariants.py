"""What must hold between any two calls of the scheduler. Violations are told, never asserted: production
counts them."""

from collections import Counter

from infer_engine.core.blocks import BlockPool
from infer_engine.core.scheduler import Scheduler


def violations(scheduler: Scheduler) -> list[str]:
    """One line for each thing that does not add up; empty when all is well. Takes time proportional to the
    pool."""
    return [
        *_of_pool(scheduler.pool),
        *_of_cache(scheduler.pool),
        *_of_tables(scheduler),
        *_of_contents(scheduler),
        *_of_host(scheduler),
        *_of_requests(scheduler),
    ]


def _of_pool(pool: BlockPool) -> list[str]:
    found: list[str] = []
    if pool.free + pool.cached + pool.used != pool.total:
        found.append(f"{pool.free} free + {pool.cached} cached + {pool.used} used != {pool.total} blocks")
    if len(set(pool.free_list)) != len(pool.free_list):
        found.append("a block is in the free list twice")
    held_but_free = [block for block in pool.free_list if pool.ref_counts[block] != 0]
    if held_but_free:
        found.append(f"free blocks with holders: {held_but_free[:8]}")
    if min(pool.ref_counts) < 0:
        found.append("a block has a negative reference count")
    return found


def _of_cache(pool: BlockPool) -> list[str]:
    """Every hash leads to one block that holds it, and of the findable blocks those without a holder, and no
    others, are cached."""
    found: list[str] = []
    index = pool.index
    if {content.hash: block for block, content in index.contents.items()} != index.blocks:
        found.append("hashes and the blocks' contents do not match")
    behind = {block for blocks in index.behind.values() for block in blocks}
    if behind != index.contents.keys():
        found.append("blocks by what is before them and the blocks' contents do not match")
    idle = {block for block in index.contents if pool.ref_counts[block] == 0}
    cached = set(pool.cached_blocks)
    if idle != cached:
        wrong = sorted(idle ^ cached)
        found.append(f"findable blocks without a holder are not the cached ones: {wrong[:8]}")
    return found


def _of_tables(scheduler: Scheduler) -> list[str]:
    """Reference counts are the entries of the running requests' block tables, nothing else."""
    pool = scheduler.pool
    entries = Counter[int]()
    for request in scheduler.running.values():
        entries.update(request.block_table)
    expected = [entries[block] for block in range(pool.total)]
    if expected == pool.ref_counts and sum(entries.values()) == sum(expected):
        return []
    wrong = [block for block in range(pool.total) if expected[block] != pool.ref_counts[block]]
    return [f"reference counts differ from the block tables: blocks {wrong[:8]}"]


def _of_contents(scheduler: Scheduler) -> list[str]:
    """What the index says a block holds is what the sequences have there that hold it."""
    size, contents = scheduler.pool.block_size, scheduler.pool.index.contents
    found: list[str] = []
    for request in scheduler.running.values():
        for number, block in enumerate(request.block_table):
            content = contents.get(block)
            if content is None:
                continue
            # A fork may hold the beginning of a block until its first write copies it.
            known = min(size, request.computed_tokens - number * size)
            if known < 1:
                found.append(f"{request.id}: block {block} can be found and is not computed")
            elif content.tokens[:known] != request.tokens(number * size, known):
                found.append(f"{request.id}: block {block} is kept for other tokens")
    return found


def _of_host(scheduler: Scheduler) -> list[str]:
    """A block of the host pool is free or keeps the KV of one waiting request."""
    host = scheduler.host
    taken = [block for request in scheduler.waiting for block in request.host_blocks]
    found: list[str] = []
    if sorted([*taken, *host.free_list]) != list(range(host.total)):
        found.append(f"{len(host.free_list)} free + {len(taken)} taken host blocks are not {host.total}")
    for request in scheduler.waiting:
        if len(request.host_blocks) != scheduler.pool.blocks_for(request.host_tokens):
            found.append(
                f"{request.id}: {request.host_tokens} tokens in {len(request.host_blocks)} host blocks"
            )
    holding = [request.id for request in scheduler.running.values() if request.host_blocks]
    if holding:
        found.append(f"running and on the host: {holding[:8]}")
    return found


def _of_requests(scheduler: Scheduler) -> list[str]:
    found: list[str] = []
    waiting = list(scheduler.waiting)
    if scheduler.waiting.tokens != sum(request.total_tokens for request in waiting):
        found.append(f"the queue counts {scheduler.waiting.tokens} tokens")
    both = {request.id for request in waiting} & scheduler.running.keys()
    if both:
        found.append(f"waiting and running at once: {sorted(both)[:8]}")
    for request in waiting:
        if request.state != "waiting" or request.block_table or request.computed_tokens:
            found.append(
                f"{request.id} waits in state {request.state} with {len(request.block_table)} blocks"
            )
        if scheduler.pool.blocks_for(request.total_tokens + 1) > scheduler.pool.total:
            found.append(f"{request.id} waits but can never fit")
    for request in scheduler.running.values():
        capacity = len(request.block_table) * scheduler.pool.block_size
        if request.state != "running":
            found.append(f"{request.id} runs in state {request.state}")
        if not 0 <= request.computed_tokens < request.total_tokens:
            found.append(f"{request.id}: {request.computed_tokens} of {request.total_tokens} tokens computed")
        if request.computed_tokens > capacity:
            found.append(f"{request.id}: {request.computed_tokens} tokens computed in blocks for {capacity}")
        if len(request.output) >= request.max_tokens:
            found.append(f"{request.id} runs past its {request.max_tokens} tokens")
    live = len(waiting) + len(scheduler.running)
    if scheduler.has_work != bool(live):
        found.append(f"has_work is {scheduler.has_work} with {live} requests")
    return found
