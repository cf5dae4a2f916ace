"""Executes plans with torch.

Idle threads must sleep: two processes whose OpenMP threads spin at barriers on the same cores wait a
scheduler slice for each other at every one. So whoever starts this process sets OMP_NUM_THREADS (cores
divided by replicas) and OMP_WAIT_POLICY=PASSIVE in its environment; both are read once, when torch loads, and
cannot be set from here.
"""

import torch

from infer_engine.core.plan import Chunk, Plan
from infer_engine.model.attention.paged import PagedAttention, Scratch, Span, pack_order
from infer_engine.model.attention.pool import KvPool
from infer_engine.model.llama import Llama
from infer_engine.model.sampler import sample
from infer_engine.runner.runner import RunnerInfo


class TorchRunner:
    """What the scheduler plans fits: block tables cover their chunks, and no sequence exceeds the context."""

    def __init__(self, info: RunnerInfo, model: Llama, pool: KvPool) -> None:
        self.info = info
        self._model: Llama | None = model
        self._pool: KvPool | None = pool
        self._scratch = Scratch(model.dtype, model.device)

    @torch.inference_mode()
    def execute(self, plan: Plan) -> dict[str, int]:
        """See ``Runner.execute``."""
        model, pool = self._model, self._pool
        if model is None or pool is None:
            raise RuntimeError("the runner is closed")
        if plan.swap_out:
            pool.swap_out(plan.swap_out)
        if plan.copies:
            pool.copy(plan.copies)
        if plan.swap_in:
            pool.swap_in(plan.swap_in)
        if not plan.chunks:
            return {}
        packed = sorted(
            ((_span(chunk), chunk) for chunk in plan.chunks), key=lambda pair: pack_order(pair[0])
        )
        tokens: list[int] = []
        positions: list[int] = []
        sampling: list[Chunk] = []
        logit_rows: list[int] = []
        for span, chunk in packed:
            tokens += chunk.request.tokens(span.start, span.count)
            positions += range(span.start, span.start + span.count)
            if chunk.samples:
                sampling.append(chunk)
                logit_rows.append(len(tokens) - 1)

        def on_device(values: list[int]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.int64, device=model.device)

        # Ids are checked where requests come in; one that slips through harms its own request alone.
        ids = on_device(tokens).clamp_(0, self.info.vocab_size - 1)
        attention = PagedAttention(pool, [span for span, _ in packed], self._scratch, model.dtype)
        logits = model(ids, on_device(positions), attention, on_device(logit_rows))
        chosen = sample(
            logits,
            [chunk.request.sampling for chunk in sampling],
            [chunk.start + chunk.count for chunk in sampling],
        )
        return {chunk.request.id: token for chunk, token in zip(sampling, chosen, strict=True)}

    def close(self) -> None:
        """Idempotent."""
        self._model = self._pool = None


def _span(chunk: Chunk) -> Span:
    return Span(chunk.start, chunk.count, chunk.request.block_table)
