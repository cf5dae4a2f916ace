"""CUDA graphs for decode: a step of single tokens is launched by one call instead of hundreds.

A graph replays fixed operations on fixed addresses, so there is one for each of a few batch sizes, on static
buffers; a batch is padded up to the next size with sequences of one token whose KV goes to a spare block.
Only steps in which every sequence decodes one token and samples, and whose longest context fits, are
replayed; for any other there is the ordinary way. Block moves come before, and sampling after, on the same
stream.

What is CUDA's is behind ``Capture``; on the CPU its twin calls the captured function each time.
"""

import logging
from collections.abc import Callable, Sequence

import torch

from infer_engine.model.attention.packed import PackedSpans, PackedStep, StepTensors
from infer_engine.model.attention.pool import KvPool
from infer_engine.runner.staging import Staging

log = logging.getLogger(__name__)

#: Makes something that, called, does what ``run`` does when called now: the same operations on the same
#: memory. ``run`` may be called before, to warm up.
Capture = Callable[[Callable[[], None]], Callable[[], None]]

LARGEST_BATCH = 512
#: Batch size times longest context, in tokens, that a graph is made for: bounds its block table, and how many
#: idle programs its kernels start. Beyond, a step is so long that launching it costs little.
MOST_TABLE_TOKENS = 1 << 20


def batch_sizes(max_running: int) -> list[int]:
    """Powers of two up to the first that holds ``max_running``, or LARGEST_BATCH."""
    sizes = [1]
    while sizes[-1] < min(max_running, LARGEST_BATCH):
        sizes.append(2 * sizes[-1])
    return sizes


class CudaCapture:
    """Captures into graphs that share one memory pool: they never run at once, and leave nothing in it."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        # Kernels are compiled and libraries set up by the first calls, which must not be in the graph.
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            run()
            run()
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            run()
        return graph.replay


def call_each_time(run: Callable[[], None]) -> Callable[[], None]:
    """The CPU's twin of a capture."""
    return run


class StaticStep:
    """The numbers of one padded decode step of ``size`` sequences, in ``memory`` on the device, where the
    graph reads them: tokens, positions, slots, lengths, sums of lengths, tables."""

    def __init__(self, size: int, context_tokens: int, pool: KvPool, memory: torch.Tensor) -> None:
        self.size = size
        self.context_tokens = context_tokens
        self._block_size = pool.block_size
        self._spare = pool.blocks
        self._width = -(-context_tokens // pool.block_size)
        self._memory = memory[: self.numbers(size, self._width)]
        rows = torch.arange(size + 1, dtype=torch.int32, device=memory.device)
        tokens, positions, slots, lengths, starts, tables = self._split(self._memory)
        self.tensors = StepTensors(
            tokens=tokens,
            positions=positions,
            logit_rows=rows[:size],
            spans=PackedSpans(
                slots=slots,
                query_starts=rows,
                lengths=lengths,
                context_starts=starts,
                tables=tables.view(size, self._width),
                singles=size,
                longest_span=1,
                longest_context=context_tokens,
            ),
        )

    @staticmethod
    def numbers(size: int, table_width: int) -> int:
        """How many int32 numbers it takes."""
        return 5 * size + 1 + size * table_width

    def fill(self, step: PackedStep | None, staging: Staging) -> None:
        """Bring a step of at most ``size`` single tokens, padded; None for padding alone."""
        host = staging.take(self._memory.numel())
        tokens, positions, slots, lengths, starts, flat_tables = (part.numpy() for part in self._split(host))
        tables = flat_tables.reshape(self.size, self._width)
        count = 0
        if step is not None:
            size, count = self._block_size, len(step.spans)
            tokens[:count] = step.tokens
            positions[:count] = [span.start for span in step.spans]
            slots[:count] = [span.table[span.start // size] * size + span.start % size for span in step.spans]
            for row, span in zip(tables, step.spans, strict=False):
                blocks = span.blocks(size)
                row[:blocks] = span.table[:blocks]
        lengths[:count] = positions[:count] + 1
        # A pad is a sequence of one token, in a block that is nobody's.
        slots[count:] = self._spare * self._block_size
        lengths[count:] = 1
        tables[count:, 0] = self._spare
        lengths.cumsum(out=starts[1:])
        self._memory.copy_(host, non_blocking=True)
        staging.sent()

    def _split(self, memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
        size = self.size
        return memory.split([size, size, size, size, size + 1, size * self._width])


class DecodeGraphs:
    """``compute`` is the forward pass; ``pool`` has a spare block, and contexts have at most
    ``context_length`` tokens. Graphs are captured when this is made, the largest first."""

    def __init__(
        self,
        compute: Callable[[StepTensors], torch.Tensor],
        pool: KvPool,
        *,
        sizes: Sequence[int],
        context_length: int,
        vocab_size: int,
        capture: Capture,
    ) -> None:
        if not pool.spare_blocks:
            raise ValueError("decode graphs need a pool with a spare block, for what padding writes")
        device = pool.device
        reach = min(context_length, pool.blocks * pool.block_size)
        bounds = {size: min(reach, MOST_TABLE_TOKENS // size) for size in sizes}
        numbers = [StaticStep.numbers(size, -(-bounds[size] // pool.block_size)) for size in sizes]
        memory = torch.empty(max(numbers), dtype=torch.int32, device=device)
        self._staging = Staging(device)
        # Results leave the graphs' memory here, so that one may use what another wrote its own to.
        self._logits = torch.empty((max(sizes), vocab_size), dtype=torch.float32, device=device)
        #: How many steps were replayed.
        self.replays = 0
        self._graphs: list[tuple[StaticStep, Callable[[], None]]] = []
        for size in sorted(sizes, reverse=True):
            static = StaticStep(size, bounds[size], pool, memory)
            static.fill(None, self._staging)
            self._graphs.insert(0, (static, capture(self._runner(compute, static))))

    def replay(self, step: PackedStep) -> torch.Tensor | None:
        """The step's logits, valid until the next replay; None where no graph fits the step."""
        count = len(step.spans)
        if len(step.logit_rows) != count or len(step.tokens) != count:
            return None  # something prefills, or does not sample
        longest = max(span.start for span in step.spans) + 1
        for static, replay in self._graphs:
            if count <= static.size and longest <= static.context_tokens:
                static.fill(step, self._staging)
                replay()
                self.replays += 1
                return self._logits[:count]
        return None

    def _runner(
        self, compute: Callable[[StepTensors], torch.Tensor], static: StaticStep
    ) -> Callable[[], None]:
        def run() -> None:
            self._logits[: static.size].copy_(compute(static.tensors))

        return run
