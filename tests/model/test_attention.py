"""Paged attention against a plain float64 computation of each token by itself."""

import random

import pytest
import torch
from infer_engine.model.architecture import Architecture
from infer_engine.model.attention import paged
from infer_engine.model.attention.paged import PagedAttention, Scratch, Span, pack_order
from infer_engine.model.attention.pool import KvPool

LAYERS, HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE, BLOCKS = 2, 6, 2, 8, 4, 200
CPU = torch.device("cpu")
ARCHITECTURE = Architecture(
    name="test",
    layers=LAYERS,
    hidden=HEADS * HEAD_DIM,
    heads=HEADS,
    kv_heads=KV_HEADS,
    head_dim=HEAD_DIM,
    feed_forward=8,
    vocab_size=8,
    context_length=1024,
    rope_base=1e4,
    norm_epsilon=1e-5,
    tied=True,
)


def naive(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, position: int) -> torch.Tensor:
    """One token's attention: ``queries`` [heads, head_dim]; ``keys``, ``values`` [context, kv_heads,
    head_dim]."""
    out: list[torch.Tensor] = []
    for head in range(HEADS):
        kv_head = head // (HEADS // KV_HEADS)
        k = keys[: position + 1, kv_head].double()
        v = values[: position + 1, kv_head].double()
        scores = k @ queries[head].double() / HEAD_DIM**0.5
        out.append(scores.softmax(0) @ v)
    return torch.cat(out)


class Step:
    """A step over ``spans`` (start, count): earlier tokens are in the pool, the spans' own are not yet.
    Blocks that nobody owns hold NaN, and slots that nobody wrote hold garbage."""

    def __init__(self, spans: list[tuple[int, int]], seed: int) -> None:
        rng = random.Random(seed)
        torch.manual_seed(seed)
        self.pool = KvPool(ARCHITECTURE, BLOCKS, BLOCK_SIZE, torch.float32, CPU)
        free = rng.sample(range(BLOCKS), BLOCKS)
        self.spans: list[Span] = []
        for start, count in spans:
            needed = -(-(start + count) // BLOCK_SIZE) + rng.randrange(
                2
            )  # tables may be longer than the context
            self.spans.append(Span(start, count, [free.pop() for _ in range(needed)]))
        self.spans.sort(key=pack_order)
        self.keys = [torch.randn(span.start + span.count, KV_HEADS, HEAD_DIM) for span in self.spans]
        self.values = [torch.randn_like(keys) for keys in self.keys]
        self.queries = [torch.randn(span.count, HEADS, HEAD_DIM) for span in self.spans]

    def slots(self, span: Span, positions: range) -> torch.Tensor:
        return torch.tensor(
            [span.table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in positions], dtype=torch.int64
        )

    def run(self, layer: int) -> torch.Tensor:
        everything = torch.full((BLOCKS * BLOCK_SIZE, 2 * KV_HEADS, HEAD_DIM), torch.nan)
        for span, keys, values in zip(self.spans, self.keys, self.values, strict=True):
            everything[self.slots(span, range(len(span.table) * BLOCK_SIZE))] = 1e3
            past = torch.cat([keys, values], dim=1)[: span.start]
            everything[self.slots(span, range(span.start))] = past
        self.pool.write(layer, self.pool.slot_rows(torch.arange(BLOCKS * BLOCK_SIZE)), everything)
        new = [
            torch.cat([keys, values], dim=1)[span.start :]
            for span, keys, values in zip(self.spans, self.keys, self.values, strict=True)
        ]
        attention = PagedAttention(self.pool, self.spans, Scratch(torch.float32, CPU), torch.float32)
        return attention(layer, torch.cat(self.queries), torch.cat(new))

    def expected(self) -> torch.Tensor:
        return torch.stack(
            [
                naive(queries[offset], keys, values, span.start + offset)
                for span, queries, keys, values in zip(
                    self.spans, self.queries, self.keys, self.values, strict=True
                )
                for offset in range(span.count)
            ]
        )


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 1)],
        [(7, 1)],
        [(0, 9)],
        [(5, 6)],
        [(3, 1), (0, 1), (16, 1), (31, 1)],
        [(10, 1), (0, 7), (33, 1), (12, 5), (4, 4)],
        # Contexts so different that the decodes attend in several groups.
        [(300, 1), (1, 1), (90, 1), (70, 1), (8, 3)],
    ],
    ids=str,
)
def test_mixed_plans_equal_a_plain_computation(spans: list[tuple[int, int]]) -> None:
    step = Step(spans, seed=len(spans))
    for layer in range(LAYERS):
        torch.testing.assert_close(step.run(layer).double(), step.expected(), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("tile", [1, 3, 4, 7])
def test_a_chunk_of_several_tiles_equals_one(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged, "TILE_QUERIES", tile)
    step = Step([(6, 13), (2, 1), (0, 12)], seed=tile)
    torch.testing.assert_close(step.run(0).double(), step.expected(), atol=2e-6, rtol=1e-5)


def test_random_plans_equal_a_plain_computation() -> None:
    rng = random.Random(0)
    for seed in range(25):
        spans = [
            (rng.randrange(60), rng.choice([1, 1, rng.randrange(1, 20)])) for _ in range(rng.randrange(1, 7))
        ]
        step = Step(spans, seed)
        torch.testing.assert_close(step.run(1).double(), step.expected(), atol=2e-6, rtol=1e-5)


def test_scratch_is_reused() -> None:
    scratch = Scratch(torch.float32, CPU)
    first = scratch.take(10, 100)
    assert first.shape == (10, 100)
    assert scratch.take(5, 50).data_ptr() == first.data_ptr()
    assert scratch.take(100, 100).shape == (100, 100)
