"""What must hold between any two calls of the scheduler. Violations are told, never asserted: production
counts them."""

from infer_engine.core.blocks import BlockPool
from infer_engine.core.queues import TIERS
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler


def violations(scheduler: Scheduler) -> list[str]:
    """One line for each thing that does not add up; empty when all is well. Takes time proportional to the
    pool."""
    waiting = list(scheduler.waiting.members())
    return [
        *_of_pool(scheduler.pool),
        *_of_cache(scheduler.pool),
        *_of_tables(scheduler),
        *_of_contents(scheduler),
        *_of_host(scheduler, waiting),
        *_of_queue(scheduler, waiting),
        *_of_running(scheduler),
    ]


def _of_pool(pool: BlockPool) -> list[str]:
    found: list[str] = []
    if pool.free + pool.cached + pool.used != pool.total:
        found.append(f"{pool.free} free + {pool.cached} cached + {pool.used} used != {pool.total} blocks")
    free, counts = pool.free_list, pool.ref_counts
    if len(set(free)) != len(free):
        found.append("a block is in the free list twice")
    if any(map(counts.__getitem__, free)):
        held_but_free = [block for block in free if counts[block] != 0]
        found.append(f"free blocks with holders: {held_but_free[:8]}")
    if min(counts) < 0:
        found.append("a block has a negative reference count")
    return found


def _of_cache(pool: BlockPool) -> list[str]:
    """Every hash leads to one block that holds it, and of the findable blocks those without a holder, and no
    others, are cached."""
    found: list[str] = []
    index, counts = pool.index, pool.ref_counts
    if not (index.contents or index.blocks or index.behind or pool.cached_blocks):
        return found
    if {content.hash: block for block, content in index.contents.items()} != index.blocks:
        found.append("hashes and the blocks' contents do not match")
    behind = {block for blocks in index.behind.values() for block in blocks}
    if behind != index.contents.keys():
        found.append("blocks by what is before them and the blocks' contents do not match")
    idle = {block for block in index.contents if counts[block] == 0}
    cached = set(pool.cached_blocks)
    if idle != cached:
        wrong = sorted(idle ^ cached)
        found.append(f"findable blocks without a holder are not the cached ones: {wrong[:8]}")
    return found


def _of_tables(scheduler: Scheduler) -> list[str]:
    """Reference counts are the entries of the running requests' block tables, nothing else."""
    pool = scheduler.pool
    expected = [0] * pool.total
    for request in scheduler.running.values():
        for block in request.block_table:
            if not 0 <= block < pool.total:
                return [f"{request.id} holds block {block} of {pool.total}"]
            expected[block] += 1
    if expected == pool.ref_counts:
        return []
    wrong = [block for block in range(pool.total) if expected[block] != pool.ref_counts[block]]
    return [f"reference counts differ from the block tables: blocks {wrong[:8]}"]


def _of_contents(scheduler: Scheduler) -> list[str]:
    """What the index says a block holds is what the sequences have there that hold it."""
    size, contents = scheduler.pool.block_size, scheduler.pool.index.contents
    found: list[str] = []
    if not contents:
        return found
    for request in scheduler.running.values():
        if contents.keys().isdisjoint(request.block_table):
            continue
        tokens = request.prompt + request.output
        for number, block in enumerate(request.block_table):
            if block not in contents:
                continue
            # A fork may hold the beginning of a block until its first write copies it.
            start = number * size
            end = min(start + size, request.computed_tokens)
            if end <= start:
                found.append(f"{request.id}: block {block} can be found and is not computed")
            elif contents[block].tokens[: end - start] != tokens[start:end]:
                found.append(f"{request.id}: block {block} is kept for other tokens")
    return found


def _of_host(scheduler: Scheduler, waiting: list[Request]) -> list[str]:
    """A block of the host pool is free or keeps the KV of one waiting request."""
    host = scheduler.host
    taken = [block for request in waiting for block in request.host_blocks]
    found: list[str] = []
    if sorted([*taken, *host.free_list]) != list(range(host.total)):
        found.append(f"{len(host.free_list)} free + {len(taken)} taken host blocks are not {host.total}")
    for request in waiting:
        if len(request.host_blocks) != scheduler.pool.blocks_for(request.host_tokens):
            found.append(
                f"{request.id}: {request.host_tokens} tokens in {len(request.host_blocks)} host blocks"
            )
    holding = [request.id for request in scheduler.running.values() if request.host_blocks]
    if holding:
        found.append(f"running and on the host: {holding[:8]}")
    return found


def _of_queue(scheduler: Scheduler, waiting: list[Request]) -> list[str]:
    found: list[str] = []
    queue, pool, running = scheduler.waiting, scheduler.pool, scheduler.running
    counted = sum(queue.count(tier) for tier in TIERS)
    if counted != len(waiting):
        found.append(f"the queue counts {counted} requests, not {len(waiting)}")
    tokens = 0
    if not waiting and not queue.tokens:
        return [*found, *_of_work(scheduler, 0)]
    for request in waiting:
        total = len(request.prompt) + len(request.output)
        tokens += total
        if request.state != "waiting" or request.block_table or request.computed_tokens:
            found.append(
                f"{request.id} waits in state {request.state} with {len(request.block_table)} blocks"
            )
        if request.id in running:
            found.append(f"{request.id} is waiting and running at once")
        if pool.blocks_for(total + 1) > pool.total:
            found.append(f"{request.id} waits but can never fit")
    if queue.tokens != tokens:
        found.append(f"the queue counts {queue.tokens} tokens, not {tokens}")
    return [*found, *_of_work(scheduler, len(waiting))]


def _of_work(scheduler: Scheduler, waiting: int) -> list[str]:
    live = waiting + len(scheduler.running)
    # Who waits in a tier that is shed is no work.
    shed = scheduler.waiting.count("batch") if scheduler.shed else 0
    if scheduler.has_work == bool(live - shed):
        return []
    return [f"has_work is {scheduler.has_work} with {live} requests"]


def _of_running(scheduler: Scheduler) -> list[str]:
    found: list[str] = []
    size = scheduler.pool.block_size
    for request in scheduler.running.values():
        total, computed = len(request.prompt) + len(request.output), request.computed_tokens
        capacity = len(request.block_table) * size
        if request.state != "running":
            found.append(f"{request.id} runs in state {request.state}")
        if not 0 <= computed < total:
            found.append(f"{request.id}: {computed} of {total} tokens computed")
        if computed > capacity:
            found.append(f"{request.id}: {computed} tokens computed in blocks for {capacity}")
        if len(request.output) >= request.max_tokens:
            found.append(f"{request.id} runs past its {request.max_tokens} tokens")
    return found
