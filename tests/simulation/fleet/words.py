"""What the replicas of a scenario compute: each token follows from the prompt and the token before it, so
that one that is lost, doubled or out of place makes everything behind it wrong."""

from collections.abc import Callable, Sequence

from infer_engine.core.plan import Plan
from infer_engine.runner.runner import RunnerInfo
from infer_engine.runner.step_output import StepOutput

VOCABULARY = 50_000


def next_token(prompt: Sequence[int], output: Sequence[int]) -> int:
    before = output[-1] if output else 0
    return (prompt[-1] * 0x9E3779B1 + before * 0x85EBCA6B + len(output) * 0xC2B2AE35 >> 7) % VOCABULARY


def answer(prompt: Sequence[int], tokens: int) -> list[int]:
    """The whole of it."""
    output: list[int] = []
    for _ in range(tokens):
        output.append(next_token(prompt, output))
    return output


class WordRunner:
    """``advance`` is called with the seconds of each step."""

    def __init__(
        self, info: RunnerInfo, advance: Callable[[float], None], step_s: Callable[[], float]
    ) -> None:
        self.info = info
        self._advance = advance
        self._step_s = step_s

    def execute(self, plan: Plan) -> StepOutput:
        self._advance(self._step_s())
        return StepOutput(
            {
                chunk.request.id: next_token(chunk.request.prompt, chunk.request.output)
                for chunk in plan.chunks
                if chunk.samples
            }
        )

    def close(self) -> None:
        """There is nothing to free."""


def runner_info(kv_blocks: int, block_size: int, context_length: int) -> RunnerInfo:
    return RunnerInfo(
        model="words",
        vocab_size=VOCABULARY,
        context_length=context_length,
        kv_blocks=kv_blocks,
        block_size=block_size,
        kv_bytes_per_token=1,
        weight_bytes=1,
        device="words",
        dtype="words",
        simulated=True,
    )
