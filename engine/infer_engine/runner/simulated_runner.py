"""A runner without a device: it computes how long a step takes at best, and moves a clock by so much.

The scheduler, the pool and everything above are the real ones. The next token is a pure function of seed,
request id and position, so preemption, another batch or another replica changes nothing. Everything it shows
is ``simulated``.
"""

import zlib
from collections.abc import Callable, Sequence

from infer_engine.core.plan import Plan
from infer_engine.core.request import Request
from infer_engine.planner import Deployment
from infer_engine.runner.runner import RunnerInfo
from infer_engine.runner.step_output import StepOutput

#: Requests whose keys are remembered; they are computed again when they are not.
MOST_KEYS = 8_192


class SimulatedRunner:
    """``advance`` is called with the seconds of each step: add them to a virtual clock, or sleep them, faster
    or not.

    ``kv_blocks`` bounds the pool below what the deployment's memory holds; PlanError where the model does not
    fit. ``vocabulary`` are the tokens that answers are made of; all there are, where it is not given.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        block_size: int,
        advance: Callable[[float], None],
        seed: int = 0,
        kv_blocks: int | None = None,
        host_blocks: int = 0,
        vocabulary: Sequence[int] | None = None,
    ) -> None:
        most = deployment.kv_blocks(block_size)
        self.info = RunnerInfo(
            model=deployment.model.name,
            vocab_size=deployment.model.vocab_size,
            context_length=deployment.model.context_length,
            kv_blocks=most if kv_blocks is None else min(kv_blocks, most),
            block_size=block_size,
            kv_bytes_per_token=deployment.model.kv_bytes_per_token,
            weight_bytes=deployment.model.weight_bytes,
            device=deployment.device,
            dtype="simulated",
            simulated=True,
            host_blocks=host_blocks,
            bandwidth_bytes_per_s=deployment.bandwidth_bytes_per_s,
        )
        #: Seconds of the last step.
        self.duration_s = 0.0
        self._deployment = deployment
        self._advance = advance
        self._seed = seed
        #: By request, what its tokens are drawn with: computed once.
        self._keys: dict[str, int] = {}
        self._vocabulary: Sequence[int] = vocabulary or range(deployment.model.vocab_size)
        self._swap_block_s = deployment.swap_s(block_size)

    def execute(self, plan: Plan) -> StepOutput:
        """Take as long as the roofline says, then name the next token of each chunk that samples."""
        self.duration_s = self._deployment.step_s([(chunk.start, chunk.count) for chunk in plan.chunks])
        if plan.swap_out or plan.swap_in:
            self.duration_s += (len(plan.swap_out) + len(plan.swap_in)) * self._swap_block_s
        self._advance(self.duration_s)
        return StepOutput(
            {chunk.request.id: self._token(chunk.request) for chunk in plan.chunks if chunk.samples}
        )

    def close(self) -> None:
        """There is nothing to free."""

    def _token(self, request: Request) -> int:
        """Never a stop token: how long an answer gets is what the request asked for."""
        key = self._keys.get(request.id)
        if key is None:
            key = self._new_key(request.id)
        # Mixed by multiplication, so that neighbouring positions differ: 0 to 2**32 - 1.
        draw = ((key ^ (len(request.output) * 0x9E3779B1)) * 0x85EBCA6B >> 13) & 0xFFFFFFFF
        vocabulary = self._vocabulary
        stops = request.stop_token_ids
        token = vocabulary[draw % len(vocabulary)]
        if not stops or token not in stops:
            return token
        others = (vocabulary[(draw + offset) % len(vocabulary)] for offset in range(1, len(stops) + 1))
        return next((other for other in others if other not in stops), token)

    def _new_key(self, request_id: str) -> int:
        if len(self._keys) >= MOST_KEYS:
            self._keys.clear()
        key = self._keys[request_id] = zlib.crc32(f"{self._seed}:{request_id}".encode())
        return key
