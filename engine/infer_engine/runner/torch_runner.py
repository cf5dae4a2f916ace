"""Executes plans with torch.

Idle threads must sleep: two processes whose OpenMP threads spin at barriers on the same cores wait a
scheduler slice for each other at every one. So whoever starts this process sets OMP_NUM_THREADS (cores
divided by replicas) and OMP_WAIT_POLICY=PASSIVE in its environment; both are read once, when torch loads, and
cannot be set from here.
"""

import torch

from infer_engine.core.plan import Chunk, Plan
from infer_engine.model.attention.packed import PackedStep
from infer_engine.model.attention.paged import Span, pack_order
from infer_engine.model.attention.pool import KvPool
from infer_engine.runner.forward import Forward
from infer_engine.runner.runner import RunnerInfo
from infer_engine.runner.step_output import StepOutput
from infer_engine.runner.token_chooser import ConstraintDesk, TokenChooser


class TorchRunner:
    """What the scheduler plans fits: block tables cover their chunks, and no sequence exceeds the context."""

    def __init__(
        self, info: RunnerInfo, pool: KvPool, forward: Forward, constraints: ConstraintDesk | None = None
    ) -> None:
        self.info = info
        self._pool: KvPool | None = pool
        self._forward: Forward | None = forward
        self._chooser = TokenChooser(info.vocab_size, constraints)

    @torch.inference_mode()
    def execute(self, plan: Plan) -> StepOutput:
        """See ``Runner.execute``."""
        pool, forward = self._pool, self._forward
        if pool is None or forward is None:
            raise RuntimeError("the runner is closed")
        if plan.swap_out:
            pool.swap_out(plan.swap_out)
        if plan.copies:
            pool.copy(plan.copies)
        if plan.swap_in:
            pool.swap_in(plan.swap_in)
        if not plan.chunks:
            return StepOutput()
        self._chooser.expect(plan.chunks)
        packed = sorted(
            ((_span(chunk), chunk) for chunk in plan.chunks), key=lambda pair: pack_order(pair[0])
        )
        tokens: list[int] = []
        sampling: list[Chunk] = []
        logit_rows: list[int] = []
        for span, chunk in packed:
            tokens += chunk.request.tokens(span.start, span.count)
            if chunk.samples:
                sampling.append(chunk)
                logit_rows.append(len(tokens) - 1)
        logits = forward(PackedStep(self._known(tokens), logit_rows, [span for span, _ in packed]))
        return self._chooser.choose(logits, sampling)

    def _known(self, tokens: list[int]) -> list[int]:
        """Ids are checked where requests come in; one that slips through harms its own request alone."""
        last = self.info.vocab_size - 1
        if min(tokens) >= 0 and max(tokens) <= last:
            return tokens
        return [min(max(token, 0), last) for token in tokens]

    @property
    def forward(self) -> Forward | None:
        """How steps are computed, for measurements; None once closed."""
        return self._forward

    def close(self) -> None:
        """Idempotent."""
        self._pool = self._forward = None
        self._chooser.close()


def _span(chunk: Chunk) -> Span:
    return Span(chunk.start, chunk.count, chunk.request.block_table)
