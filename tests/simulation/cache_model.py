"""What the prefix cache must know, worked out from what was computed and what was reported as evicted."""

from typing import Any


class CacheModel:
    """Contents are told apart by the fake runner's KV, which stands for a whole prefix and its salt."""

    def __init__(self, pool: Any, runner: Any) -> None:
        self.enabled = pool.index.enabled
        self._pool = pool
        self._runner = runner
        self._block_of: dict[int, int] = {}
        self._content: dict[int, int] = {}

    def check_plan(self, plan: Any, scheduler: Any) -> None:
        """Evicted was only what nobody held; what was hit is computed, of the same beginning, and all there
        is."""
        for block in plan.evicted:
            assert block in self._content, f"block {block} was evicted and held nothing"
            del self._block_of[self._content.pop(block)]
        if plan.evicted and not plan.preempted and not plan.finished:
            assert self._pool.free == 0, "a cached block was evicted with others free"
        size = self._pool.block_size
        for admission in plan.admitted:
            request = scheduler.get(admission.id)
            assert request.cached_tokens == admission.cached_tokens
            swapped = request.cached_tokens < request.computed_tokens
            restored = sum(block in request.block_table for _, block in plan.swap_in)
            assert swapped == (restored > 0)
            if swapped:
                whole = -(-request.computed_tokens // size)
                assert restored == whole - request.cached_tokens // size, f"{request.id} was restored in part"
            assert request.cached_tokens < request.total_tokens, f"{request.id} has nothing left to compute"
            blocks, part = divmod(request.cached_tokens, size)
            copied = {target: source for source, target in plan.copies}
            source = copied.get(request.block_table[blocks])
            assert (part > 0) == (source is not None and not swapped), (
                f"{request.id} took {part} tokens from {source}"
            )
            if source is not None:
                wanted = self._runner.chain(request)[blocks * size : blocks * size + part]
                assert self._runner.kv[source][:part] == wanted, f"{request.id} took what is not its own"
            found = self.longest_hit(request)
            assert found[:blocks] == request.block_table[:blocks], f"{request.id} hit what is not its own"
            assert len(found) <= blocks, f"{request.id} hit {blocks} of {len(found)} blocks"
        fresh = [admission for admission in plan.admitted if not admission.resumed]
        assert plan.prefix_hit_tokens == sum(admission.cached_tokens for admission in fresh)
        if self.enabled:
            queried = sum(scheduler.get(admission.id).total_tokens for admission in fresh)
            assert plan.prefix_queries_tokens == queried
        assert self._pool.index.contents.keys() == self._content.keys()

    def check_commit(self, plan: Any) -> None:
        """Blocks that the step filled can be found, but for those whose request was aborted meanwhile."""
        size = self._pool.block_size
        restored = {block for _, block in plan.swap_in}
        for chunk in plan.chunks if self.enabled else []:
            request, end = chunk.request, chunk.start + chunk.count
            if request.computed_tokens != end:
                continue
            for number in range(end // size):
                if number < chunk.start // size and request.block_table[number] not in restored:
                    continue
                content = self._runner.chain(request)[(number + 1) * size - 1]
                block = request.block_table[number]
                if content not in self._block_of and block not in self._content:
                    self._block_of[content] = block
                    self._content[block] = content
        assert self._pool.index.contents.keys() == self._content.keys()

    def longest_hit(self, request: Any) -> list[int]:
        """Blocks that hold the request's beginning, but for its newest token."""
        size, hit = self._pool.block_size, []
        if not self._block_of:
            return []
        chain = self._runner.chain(request)
        for number in range((request.total_tokens - 1) // size):
            block = self._block_of.get(chain[(number + 1) * size - 1])
            if block is None:
                break
            hit.append(block)
        return hit
