"""A runner whose next token is a pure function of request and position, and whose KV memory remembers what
was written where, so that a block used by two sequences, or never written, shows at once.

A token's KV stands for all tokens before it and for the salt, so a block that was cached behind other tokens,
or for another tenant, shows too.
"""

import zlib
from typing import Any


def token_at(key: int, position: int) -> int:
    """The token that request ``key`` generates as its ``position``-th."""
    return ((key * 2_654_435_761) ^ (position * 40_503) ^ ((key + position) << 7)) & 0x3FFF_FFFF


class FakeRunner:
    def __init__(self, blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self.kv: list[list[int]] = [[-1] * block_size for _ in range(blocks)]
        self.host: dict[int, list[int]] = {}
        self._chains: dict[str, tuple[Any, list[int]]] = {}

    def execute(self, plan: Any) -> dict[str, int]:
        """Move and copy blocks, write the KV of every chunk, then attend; AssertionError when a sequence's KV
        is not what it should be."""
        for block, host in plan.swap_out:
            self.host[host] = self.kv[block][:]
        copied = [(self.kv[source][:], target) for source, target in plan.copies]
        for values, target in copied:
            self.kv[target] = values
        for host, block in plan.swap_in:
            self.kv[block] = self.host[host][:]
        for chunk in plan.chunks:
            self._write(chunk)
        return {chunk.request.id: self._sample(chunk.request) for chunk in plan.chunks if chunk.samples}

    def _write(self, chunk: Any) -> None:
        table, size = chunk.request.block_table, self._block_size
        values = self.chain(chunk.request)
        for position in range(chunk.start, chunk.start + chunk.count):
            self.kv[table[position // size]][position % size] = values[position]

    def _sample(self, request: Any) -> int:
        values = self.chain(request)
        held = [value for block in request.block_table for value in self.kv[block]]
        if held[: len(values)] != values:
            start = next(n for n, value in enumerate(values) if held[n : n + 1] != [value])
            raise AssertionError(f"{request.id}: KV of tokens {start}.. is not its own")
        return token_at(request.sampling, len(request.output))

    def chain(self, request: Any) -> list[int]:
        """The KV of each of the request's tokens."""
        known, values = self._chains.get(request.id, (None, []))
        if known is not request:
            values = []
            self._chains[request.id] = request, values
        if len(values) < request.total_tokens:
            value = values[-1] if values else zlib.crc32(request.cache_salt.encode())
            known_tokens = len(values)
            for token in request.tokens(known_tokens, request.total_tokens - known_tokens):
                value = (value * 6_364_136_223_846_793_005 + token + 1) & 0xFFFF_FFFF_FFFF_FFFF
                values.append(value)
        return values

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._chains.pop(request_id, None)
