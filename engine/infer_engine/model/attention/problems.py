"""Small attention problems of a model's own shapes, with answers computed in float64."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch

from infer_engine.model.architecture import Architecture
from infer_engine.model.attention.packed import KernelAttention, PackedStep, PagedKernel
from infer_engine.model.attention.paged import PagedAttention, Scratch, Span, pack_order
from infer_engine.model.attention.pool import KvPool, Layout
from infer_engine.model.llama import Attention

#: How a step's attention is made.
MakeAttention = Callable[[KvPool, list[Span]], Attention]

#: (start, count) of the spans of each problem: decodes at the borders of pages, tiles and parts; chunks that
#: begin a context and that continue one; both together.
PROBLEMS: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0, 1),),
    ((15, 1), (16, 1), (63, 1), (700, 1), (511, 1)),
    ((0, 37), (530, 70)),
    ((40, 1), (600, 1), (0, 20), (33, 50), (1, 1)),
)
#: The largest error, relative to the largest element of the answer, of a computation that is right.
TOLERANCES = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@dataclass(slots=True, frozen=True)
class Shapes:
    """What attention depends on. ``architecture`` gives the heads."""

    architecture: Architecture
    block_size: int
    dtype: torch.dtype
    device: torch.device
    layout: Layout


def worst_error(
    make: MakeAttention, shapes: Shapes, problems: Iterable[tuple[tuple[int, int], ...]] = PROBLEMS
) -> float:
    """The largest error over ``problems``, relative to the largest element of each answer; NaN where it
    computed one."""
    errors = [Problem(shapes, spans, seed).error(make) for seed, spans in enumerate(problems)]
    return float(torch.tensor(errors).max())


def kernel_path(kernel: PagedKernel) -> MakeAttention:
    """Attention by a kernel over pages."""

    def attention(pool: KvPool, spans: list[Span]) -> Attention:
        step = PackedStep(tokens=[0] * sum(span.count for span in spans), logit_rows=[], spans=spans)
        numbers = torch.tensor(step.numbers(pool.block_size), dtype=torch.int32, device=pool.device)
        return KernelAttention(pool, kernel, step.on_device(numbers, pool.block_size).spans)

    return attention


def gather_path(scratch: Scratch, dtype: torch.dtype) -> MakeAttention:
    """Attention by gathering."""
    return lambda pool, spans: PagedAttention(pool, spans, scratch, dtype)


class Problem:
    """One packed batch. Blocks that nobody owns hold NaN, and slots that nobody wrote hold large numbers."""

    def __init__(self, shapes: Shapes, spans: Iterable[tuple[int, int]], seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        size = shapes.block_size
        bounds = list(spans)
        needed = [-(-(start + count) // size) for start, count in bounds]
        blocks = sum(needed) + len(needed) + 2
        order = random.Random(seed).sample(range(blocks), blocks)
        # A table may be longer than its context needs.
        tables = [[order.pop() for _ in range(number + seed % 2)] for number in needed]
        self._shapes = shapes
        self._spans = sorted(
            (Span(start, count, table) for (start, count), table in zip(bounds, tables, strict=True)),
            key=pack_order,
        )
        architecture = replace(shapes.architecture, layers=2)
        self._pool = KvPool(architecture, blocks, size, shapes.dtype, shapes.device, layout=shapes.layout)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(shapes.dtype)

        heads, planes, head_dim = architecture.heads, 2 * architecture.kv_heads, architecture.head_dim
        self._queries = [normal(span.count, heads, head_dim) for span in self._spans]
        self._contexts = [normal(span.start + span.count, planes, head_dim) for span in self._spans]

    def error(self, make: MakeAttention) -> float:
        """Relative to the largest element of the answer."""
        expected = torch.cat([self._answer(index) for index in range(len(self._spans))])
        got = self._attend(make).cpu().double()
        return float((got - expected).abs().max() / expected.abs().max())

    def _attend(self, make: MakeAttention) -> torch.Tensor:
        """Of layer 1; layer 0 stays NaN."""
        pool, device = self._pool, self._shapes.device
        heads, head_dim = self._queries[0].shape[1:]
        size = pool.block_size
        everything = torch.full((pool.blocks * size, *self._contexts[0].shape[1:]), torch.nan)
        for span, context in zip(self._spans, self._contexts, strict=True):
            table = torch.tensor(span.table)
            slots = (table[:, None] * size + torch.arange(size)).flatten()
            everything[slots] = 1e3
            everything[slots[: span.start]] = context[: span.start].float()
        everything = everything.to(device, self._shapes.dtype)
        pool.write(0, pool.slot_rows(torch.arange(pool.blocks * size, device=device)), everything * torch.nan)
        pool.write(1, pool.slot_rows(torch.arange(pool.blocks * size, device=device)), everything)
        new = torch.cat(
            [context[span.start :] for span, context in zip(self._spans, self._contexts, strict=True)]
        )
        # As the model has them: queries are part of a wider row.
        rows = torch.cat([torch.cat(self._queries), new], dim=1).to(device)
        attended = make(pool, self._spans)(1, rows[:, :heads], rows[:, heads:])
        return attended.view(-1, heads * head_dim)

    def _answer(self, index: int) -> torch.Tensor:
        """[count, heads * head_dim] in float64, on the CPU, from contiguous keys and values."""
        span, queries = self._spans[index], self._queries[index].double()
        heads, head_dim = queries.shape[1:]
        keys, values = self._contexts[index].double().chunk(2, dim=1)
        group = heads // keys.shape[1]
        keys, values = (one.repeat_interleave(group, dim=1).transpose(0, 1) for one in (keys, values))
        scores = queries.transpose(0, 1) @ keys.transpose(1, 2) / head_dim**0.5
        positions = torch.arange(span.start, span.start + span.count)
        hidden = torch.arange(keys.shape[1]) > positions[:, None]
        attended = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values
        return attended.transpose(0, 1).flatten(1)
