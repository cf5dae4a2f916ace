"""The KV pool of one replica: every layer's keys and values, in blocks."""

from collections.abc import Sequence
from typing import Literal

import torch

from infer_engine.model.architecture import Architecture

#: Where a KV head lies. heads: outside the block, ``[layers, 2 (K, V), kv_heads, blocks, block_size,
#: head_dim]``, so that a gathered context is contiguous for each head, which is how torch's attention reads
#: it. pages: inside, ``[layers, 2, blocks, block_size, kv_heads, head_dim]``, as paged kernels want it: what
#: a token adds is contiguous.
Layout = Literal["heads", "pages"]

#: Blocks that one swap operation moves at once; bounds its temporary copy on the device.
_MOST_STAGED_BLOCKS = 32


class KvPool:
    """Keys and values of a step are written, and gathered, by one operation each, whatever the layout. A
    *slot* is a token's place, ``block * block_size + offset``.

    ``spare_blocks`` lie behind the pool's own, are nobody's, and hold what padding writes.

    A layer is ``planes`` rows for each block: K and V, and with the layout heads one of each for every head.
    The host pool keeps each block whole instead, all layers together, so that a block is moved by one copy.
    Nothing here waits for the device: what is asked of one stream happens in that order.
    """

    def __init__(
        self,
        architecture: Architecture,
        blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        host_blocks: int = 0,
        *,
        layout: Layout = "heads",
        spare_blocks: int = 0,
    ) -> None:
        self.blocks = blocks
        self.host_blocks = host_blocks
        self.block_size = block_size
        self.device = device
        self.layout = layout
        self.spare_blocks = spare_blocks
        self._kv_heads = architecture.kv_heads
        self._head_dim = architecture.head_dim
        self._planes = 2 * architecture.kv_heads if layout == "heads" else 2
        self._stored_blocks = blocks + spare_blocks
        token_elements = architecture.head_dim * (1 if layout == "heads" else architecture.kv_heads)
        rows, elements = self._planes * self._stored_blocks, block_size * token_elements
        self._storage = torch.zeros((architecture.layers, rows, elements), dtype=dtype, device=device)
        self._by_block = list(self._storage)
        self._by_slot = [layer.view(rows * block_size, token_elements) for layer in self._storage]
        # Untouched until used: a host pool that nobody needs costs no memory, unless it must be pinned.
        self._host = torch.empty(
            (host_blocks, architecture.layers, self._planes, elements),
            dtype=dtype,
            pin_memory=device.type == "cuda" and host_blocks > 0,
        )
        self._plane_numbers = torch.arange(self._planes, device=device).unsqueeze(1)

    @property
    def storage(self) -> torch.Tensor:
        """[layers, 2 kv_heads blocks, block_size head_dim], for kernels that find the blocks themselves."""
        return self._storage

    @property
    def stored_blocks(self) -> int:
        """Blocks of the storage: what lies between the planes."""
        return self.blocks

    def slot_rows(self, slots: torch.Tensor) -> torch.Tensor:
        """Where the K and V of tokens at ``slots`` [T] (any integers) go: int64 [planes T], for ``write``."""
        return (self._plane_numbers * (self._stored_blocks * self.block_size) + slots).flatten()

    def block_rows(self, blocks: torch.Tensor) -> torch.Tensor:
        """Where ``blocks`` [N] lie: int64 [planes N], for ``gather``."""
        return (self._plane_numbers * self._stored_blocks + blocks).flatten()

    def write(self, layer: int, rows: torch.Tensor, kv: torch.Tensor) -> None:
        """Store ``kv`` [T, 2 kv_heads, head_dim] (keys, then values) at the slots that ``rows`` were made
        of."""
        by_slot = self._by_slot[layer]
        by_plane = kv.reshape(kv.shape[0], self._planes, -1).transpose(0, 1)
        by_slot.index_copy_(0, rows, by_plane.reshape(-1, by_slot.shape[1]))

    def gather(self, layer: int, rows: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Copy the N blocks that ``rows`` were made of into ``out`` [2 kv_heads N, block_size head_dim], each
        head's one after another."""
        if self.layout == "heads":
            return torch.index_select(self._by_block[layer], 0, rows, out=out)
        blocks = rows.shape[0] // 2
        picked = self._by_block[layer].index_select(0, rows)
        picked = picked.view(2, blocks, self.block_size, self._kv_heads, self._head_dim)
        by_head = out.view(2, self._kv_heads, blocks, self.block_size, self._head_dim)
        by_head.copy_(picked.permute(0, 3, 1, 2, 4))
        return out

    def pages(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values in place, for kernels: views [blocks and spare blocks, block_size, kv_heads,
        head_dim], contiguous with the layout pages."""
        shape = (self._stored_blocks, self.block_size)
        if self.layout == "pages":
            keys, values = self._storage[layer].view(2, *shape, self._kv_heads, self._head_dim)
        else:
            by_head = self._storage[layer].view(2, self._kv_heads, *shape, self._head_dim)
            keys, values = by_head.permute(0, 2, 3, 1, 4)
        return keys, values

    def copy(self, copies: list[tuple[int, int]]) -> None:
        """Copy whole blocks (from, to) in all layers; all are read before any is written."""
        sources, targets = (self.block_rows(self._on_device(blocks)) for blocks in zip(*copies, strict=True))
        self._storage.index_copy_(1, targets, self._storage.index_select(1, sources))

    def swap_out(self, moves: list[tuple[int, int]]) -> None:
        """Copy whole blocks (in the pool, on the host) to the host, in all layers."""
        for some in _batches(moves):
            blocks, host = zip(*some, strict=True)
            picked = self._storage.index_select(1, self.block_rows(self._on_device(blocks)))
            by_block = picked.unflatten(1, (self._planes, -1)).permute(2, 0, 1, 3).contiguous()
            for place, block in zip(host, by_block, strict=True):
                self._host[place].copy_(block, non_blocking=True)

    def swap_in(self, moves: list[tuple[int, int]]) -> None:
        """Copy whole blocks (on the host, in the pool) from the host, in all layers."""
        for some in _batches(moves):
            host, blocks = zip(*some, strict=True)
            by_block = self._storage.new_empty(len(host), *self._host.shape[1:])
            for place, block in zip(host, by_block, strict=True):
                block.copy_(self._host[place], non_blocking=True)
            rows = self.block_rows(self._on_device(blocks))
            self._storage.index_copy_(1, rows, by_block.permute(1, 2, 0, 3).flatten(1, 2))

    def _on_device(self, numbers: Sequence[int]) -> torch.Tensor:
        device = self._storage.device
        pinned = torch.tensor(numbers, dtype=torch.int64, pin_memory=device.type == "cuda")
        return pinned.to(device, non_blocking=True)


def _batches(moves: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    return [moves[first : first + _MOST_STAGED_BLOCKS] for first in range(0, len(moves), _MOST_STAGED_BLOCKS)]
