"""A runner whose next token is a pure function of request and position, and whose KV memory remembers what
was written where, so that a block used by two sequences, or never written, shows at once."""

from typing import Any


def token_at(key: int, position: int) -> int:
    """The token that request ``key`` generates as its ``position``-th."""
    return ((key * 2_654_435_761) ^ (position * 40_503) ^ ((key + position) << 7)) & 0x3FFF_FFFF


class FakeRunner:
    def __init__(self, blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._kv: list[list[int]] = [[-1] * block_size for _ in range(blocks)]

    def execute(self, plan: Any) -> dict[str, int]:
        """Write the KV of every chunk, then attend; AssertionError when a sequence's KV is not what it should
        be."""
        for chunk in plan.chunks:
            self._write(chunk)
        return {chunk.request.id: self._sample(chunk.request) for chunk in plan.chunks if chunk.samples}

    def _write(self, chunk: Any) -> None:
        request, size = chunk.request, self._block_size
        tokens = (request.prompt + request.output)[chunk.start : chunk.start + chunk.count]
        for position, token in enumerate(tokens, chunk.start):
            self._kv[request.block_table[position // size]][position % size] = token

    def _sample(self, request: Any) -> int:
        tokens, size = request.prompt + request.output, self._block_size
        for index, start in enumerate(range(0, len(tokens), size)):
            want = tokens[start : start + size]
            held = self._kv[request.block_table[index]][: len(want)]
            assert held == want, f"{request.id}: KV of tokens {start}.. is not its own"
        return token_at(request.sampling, len(request.output))
