"""How long a step of this fleet's replicas takes: computed where they are simulated, else from what was
measured."""

from collections.abc import Sequence

from infer_engine.fleet.outlook import StepTime
from infer_engine.planner import Deployment
from infer_engine.runner.runner import RunnerInfo


def step_time(
    deployment: Deployment | None, runners: Sequence[RunnerInfo], itl_s: float | None
) -> StepTime | None:
    """None where nothing has told yet: ``itl_s`` is the median of the last minute."""
    if deployment is not None:
        return deployment.step_s
    rates = [each.prefill_tokens_per_s for each in runners if each.prefill_tokens_per_s]
    if not rates or itl_s is None:
        return None
    token_s = len(rates) / sum(rates)
    decode_s = itl_s

    def measured(chunks: Sequence[tuple[int, int]]) -> float:
        prefill = sum(count for _, count in chunks if count > 1)
        return prefill * token_s + (decode_s if any(count == 1 for _, count in chunks) else 0.0)

    return measured
