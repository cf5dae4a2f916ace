"""A Llama on the compiled kernels: weights packed, buffers kept, a step handed to a team of threads."""

import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from infer_engine.model.architecture import Architecture
from infer_engine.model.attention.paged import Span
from infer_engine.model.attention.pool import KvPool
from infer_engine.model.kernels.attention import PART, TILE, tile_scratch
from infer_engine.model.kernels.forward import PHASES_PER_LAYER, Buffers, Parameters, Shape, Step, forward
from infer_engine.model.kernels.micro import GROUP
from infer_engine.model.kernels.packing import Packed, pack
from infer_engine.model.kernels.products import BITS_4, BITS_8, HALF
from infer_engine.model.kernels.simd import PANEL, SIMD
from infer_engine.model.kernels.stored import StoredMatrices
from infer_engine.model.kernels.team import COUNTERS_PER_PHASE, Team
from infer_engine.model.llama import rope_frequencies
from infer_engine.model.store import Progress, no_progress
from infer_engine.model.weights import Weights

_DTYPE_NAMES = {BITS_4: "q4", BITS_8: "q8", HALF: "fp16"}
_NAMES = ("qkv", "output", "gate_up", "down")


class KernelLlama:
    """``weights`` as ``load_weights`` returns them; where ``stored`` has a matrix as the file quantised it,
    that is used. Activations are fp32, rounded to 16 bits in groups of 32 where they meet quantised weights.
    """

    def __init__(
        self,
        architecture: Architecture,
        weights: Weights,
        stored: StoredMatrices,
        threads: int,
        progress: Progress = no_progress,
    ) -> None:
        a = self.architecture = architecture
        self.dtype, self.device = torch.float32, torch.device("cpu")
        # It stays in the memory map: a step reads a few rows of it.
        self._embedding = weights["embedding"]
        self._packed: list[Packed] = []

        def packed(name: str) -> tuple[int, int]:
            one = pack(stored.rows(name), lambda: weights[name], by_turns=name.endswith("gate_up"))
            self._packed.append(one)
            return one.kind, one.data.ctypes.data

        matrices = np.zeros((a.layers, len(_NAMES), 2), np.int64)
        for n in range(a.layers):
            progress("loading the weights", n / a.layers)
            for number, name in enumerate(_NAMES):
                matrices[n, number] = packed(f"layers.{n}.{name}")
        head = np.array(packed("embedding" if a.tied else "head"), np.int64)
        #: As ``RunnerInfo`` tells it: how most weights are stored, and what computes.
        kinds = [one.kind for one in self._packed for _ in range(one.data.nbytes >> 12)] or [HALF]
        self.dtype_name = _DTYPE_NAMES[max(set(kinds), key=kinds.count)]
        self.path = f"kernels {SIMD}"
        self.weight_bytes = sum(one.data.nbytes for one in self._packed)

        def norms(name: str) -> NDArray[np.float32]:
            return np.stack([weights[f"layers.{n}.{name}"].numpy() for n in range(a.layers)])

        self._parameters = Parameters(
            matrices,
            head,
            norms("attention_norm"),
            norms("ffn_norm"),
            weights["norm"].numpy().copy(),
            np.float32(a.norm_epsilon),
        )
        self._frequencies = rope_frequencies(a)
        self._scratch = tile_scratch(threads, a.queries_per_kv_head, a.head_dim)
        self._buffers = _Kept(a, threads)
        self._counters = np.zeros((a.layers * PHASES_PER_LAYER + 2) * COUNTERS_PER_PHASE, np.int64)
        self._team = Team(threads)
        weakref.finalize(self, self._team.close)

    def __call__(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        spans: list[Span],
        pool: KvPool,
        logit_rows: list[int],
    ) -> torch.Tensor:
        """``tokens`` and ``positions`` int64 [T], the spans' one after another; returns fp32 logits
        [len(logit_rows), vocab], valid until the next call."""
        a = self.architecture
        shape = Shape(
            a.layers,
            a.hidden,
            a.heads,
            a.kv_heads,
            a.head_dim,
            a.feed_forward,
            pool.block_size,
            pool.stored_blocks,
        )
        step = _step(spans, self._rotations(positions), pool.block_size, logit_rows)
        buffers = self._buffers.take(len(tokens), len(step.tasks) - step.tiles, len(logit_rows))
        buffers.x[:, : a.hidden] = functional.embedding(tokens, self._embedding).numpy()
        storage = pool.storage.numpy()
        self._counters[:] = 0
        threads = self._team.threads

        def work(thread: int) -> None:
            forward(
                shape,
                self._parameters,
                step,
                buffers,
                self._scratch,
                storage,
                self._counters,
                thread,
                threads,
            )

        self._team.run(work)
        return torch.from_numpy(buffers.logits)[:, : a.vocab_size]

    def _rotations(self, positions: torch.Tensor) -> NDArray[np.float32]:
        """[T, head_dim]: cosine and sine of position times frequency, by turns."""
        angles = torch.outer(positions.float(), self._frequencies)
        return torch.stack((angles.cos(), angles.sin()), dim=-1).flatten(1).numpy()

    @property
    def scratch_bytes(self) -> int:
        """What the steps so far have left allocated, beside weights and pool."""
        return sum(one.nbytes for one in (*self._scratch, self._counters, *self._buffers.arrays()))

    def close(self) -> None:
        """End the threads, as the end of this object does. Idempotent."""
        self._team.close()


def _step(spans: list[Span], rotations: NDArray[np.float32], block_size: int, logit_rows: list[int]) -> Step:
    tables = np.zeros((len(spans), max(len(span.table) for span in spans)), np.int64)
    slots = np.empty(len(rotations), np.int64)
    parts = np.zeros((len(rotations), 2), np.int64)
    tiles: list[tuple[int, int, int, int, int]] = []
    pieces: list[tuple[int, int, int, int, int]] = []
    row = 0
    for number, span in enumerate(spans):
        table = tables[number]
        table[: len(span.table)] = span.table
        at = np.arange(span.start, span.start + span.count)
        slots[row : row + span.count] = table[at // block_size] * block_size + at % block_size
        if span.count == 1:
            begins = range(0, span.start + 1, PART)
            parts[row] = len(pieces), len(begins)
            pieces += [(number, row, 0, begin, min(begin + PART, span.start + 1)) for begin in begins]
        else:
            for first in range(0, span.count, TILE):
                count = min(TILE, span.count - first)
                tiles.append((number, row + first, count, span.start + first, 0))
        row += span.count
    return Step(
        rotations=rotations,
        slots=slots,
        tables=tables,
        # The last tiles of a prompt have the most to do: first.
        tasks=np.array(tiles[::-1] + pieces, np.int64),
        tiles=len(tiles),
        parts=parts,
        logit_rows=np.array(logit_rows, np.int64),
    )


class _Kept:
    """The buffers, kept from step to step: fresh pages would cost more than what is done to them. They grow
    to the largest step seen."""

    def __init__(self, a: Architecture, threads: int) -> None:
        self._a = a
        self._threads = threads
        self._rows = self._parts = self._logits = 0
        self._kept: Any = None

    def take(self, rows: int, parts: int, logits: int) -> Buffers:
        """Contents are left over from before; padding is finite."""
        if rows > self._rows or parts > self._parts or logits > self._logits:
            self._rows = max(rows, self._rows)
            self._parts = max(parts, self._parts)
            self._logits = max(logits, self._logits)
            self._kept = self._made()
        kept: Buffers = self._kept
        return kept._replace(
            **{
                name: getattr(kept, name)[:rows] for name in ("x", "qkv", "row", "hidden", "shorts", "scales")
            },
            parts=kept.parts[:parts],
            logits=kept.logits[:logits],
        )

    def arrays(self) -> tuple[NDArray[Any], ...]:
        return self._kept or ()

    def _made(self) -> Buffers:
        a, rows = self._a, self._rows
        width = a.heads * a.head_dim
        widest = max(a.hidden, width, a.feed_forward)

        def floats(*shape: int) -> NDArray[np.float32]:
            return np.zeros(shape, np.float32)

        return Buffers(
            x=floats(rows, _panels(a.hidden)),
            qkv=floats(rows, _panels(width + 2 * a.kv_heads * a.head_dim)),
            row=floats(rows, max(a.hidden, width)),
            hidden=floats(rows, _panels(a.feed_forward)),
            shorts=np.zeros((rows, widest), np.int16),
            scales=floats(rows, widest // GROUP, 2),
            parts=floats(self._parts, a.heads, 2 + a.head_dim),
            scores=floats(self._threads, a.queries_per_kv_head, PART),
            tile=floats(self._threads, rows, 2, PANEL),
            logits=floats(self._logits, _panels(a.vocab_size)),
        )


def _panels(columns: int) -> int:
    return -(-columns // PANEL) * PANEL
