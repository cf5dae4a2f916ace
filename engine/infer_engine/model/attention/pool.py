"""The KV pool of one replica: every layer's keys and values, in blocks."""

import torch

from infer_engine.model.architecture import Architecture


class KvPool:
    """Storage ``[layers, 2 (K, V), kv_heads, blocks, block_size, head_dim]``.

    With the head outside the block, a gathered context is contiguous for each head, which is how the
    attention kernel reads it, and keys and values of a step are written and gathered by one operation each. A
    *slot* is a token's place, ``block * block_size + offset``.
    """

    def __init__(
        self,
        architecture: Architecture,
        blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        host_blocks: int = 0,
    ) -> None:
        self.blocks = blocks
        self.host_blocks = host_blocks
        self.block_size = block_size
        self._planes = 2 * architecture.kv_heads
        shape = (architecture.layers, self._planes * blocks, block_size * architecture.head_dim)
        self._storage = torch.zeros(shape, dtype=dtype, device=device)
        self._by_block = list(self._storage)
        self._by_slot = [
            layer.view(self._planes * blocks * block_size, architecture.head_dim) for layer in self._storage
        ]
        # Of the same layout, and untouched until used: a host pool that nobody needs costs no memory.
        host_shape = (architecture.layers, self._planes * host_blocks, block_size * architecture.head_dim)
        self._host = torch.empty(host_shape, dtype=dtype, pin_memory=device.type == "cuda")
        self._plane_numbers = torch.arange(self._planes, device=device).unsqueeze(1)

    def slot_rows(self, slots: torch.Tensor) -> torch.Tensor:
        """Where the K and V of tokens at ``slots`` [T] go: int64 [2 kv_heads T], for ``write``."""
        return (self._plane_numbers * (self.blocks * self.block_size) + slots).flatten()

    def block_rows(self, blocks: torch.Tensor) -> torch.Tensor:
        """Where ``blocks`` [N] lie: int64 [2 kv_heads N], for ``gather``."""
        return (self._plane_numbers * self.blocks + blocks).flatten()

    def copy(self, copies: list[tuple[int, int]]) -> None:
        """Copy whole blocks (from, to) in all layers; all are read before any is written."""
        device = self._storage.device
        sources, targets = (
            self.block_rows(torch.tensor(blocks, dtype=torch.int64, device=device))
            for blocks in zip(*copies, strict=True)
        )
        self._storage.index_copy_(1, targets, self._storage.index_select(1, sources))

    def swap_out(self, moves: list[tuple[int, int]]) -> None:
        """Copy whole blocks (in the pool, on the host) to the host, in all layers."""
        blocks, host = zip(*moves, strict=True)
        rows = self.block_rows(torch.tensor(blocks, dtype=torch.int64, device=self._storage.device))
        self._host.index_copy_(1, self._host_rows(host), self._storage.index_select(1, rows).to("cpu"))

    def swap_in(self, moves: list[tuple[int, int]]) -> None:
        """Copy whole blocks (on the host, in the pool) from the host, in all layers."""
        host, blocks = zip(*moves, strict=True)
        rows = self.block_rows(torch.tensor(blocks, dtype=torch.int64, device=self._storage.device))
        kept = self._host.index_select(1, self._host_rows(host))
        self._storage.index_copy_(1, rows, kept.to(self._storage.device))

    def _host_rows(self, blocks: tuple[int, ...]) -> torch.Tensor:
        planes = torch.arange(self._planes).unsqueeze(1)
        return (planes * self.host_blocks + torch.tensor(blocks, dtype=torch.int64)).flatten()

    def write(self, layer: int, rows: torch.Tensor, kv: torch.Tensor) -> None:
        """Store ``kv`` [T, 2 kv_heads, head_dim] (keys, then values) at the slots that ``rows`` were made
        of."""
        self._by_slot[layer].index_copy_(0, rows, kv.transpose(0, 1).reshape(-1, kv.shape[-1]))

    def gather(self, layer: int, rows: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Copy the blocks that ``rows`` were made of into ``out`` [2 kv_heads N, block_size head_dim]."""
        return torch.index_select(self._by_block[layer], 0, rows, out=out)
