"""Prompts that prefill beside running requests make every step long: ITL suffers though nobody waits."""

from collections.abc import Iterator

from infer_engine.protocol import Replica

from infer_console.diagnosis.advice import stop_tests
from infer_console.diagnosis.case import Case
from infer_console.diagnosis.track import median
from infer_console.state.finding import Finding, Proposal
from infer_console.view.format import milliseconds

#: The last seconds, most of whose steps have to carry a chunk of a prompt.
SECONDS = 5.0
MIXED_SHARE = 0.6
#: A step with a chunk takes so much longer than one without, and so long that readers see it.
RATIO = 3.0
LONG_STEP_S = 0.08
#: So many decode beside it.
DECODING = 4
#: The token budget that is proposed is not cut below this.
LEAST_BUDGET = 32


def prefill_interference(case: Case) -> Iterator[Finding]:
    for name, replica, track in case.serving():
        itl_s = replica.itl_s.p99
        if (replica.running or 0) < DECODING or (itl_s is not None and itl_s < LONG_STEP_S):
            continue
        mixed = track.values("mixed", SECONDS)
        if len(mixed) < 3 or sum(mixed) < MIXED_SHARE * len(mixed):
            continue
        step = replica.step
        with_chunk_s = median(track.values("mixed_s", SECONDS))
        without_s = median(track.values("decode_s", 120.0))
        if step is None or with_chunk_s is None or without_s is None:
            continue
        if with_chunk_s < LONG_STEP_S or with_chunk_s < RATIO * without_s:
            continue
        yield Finding(
            rule="prefill_interference",
            replica=name,
            evidence={
                "step_with_prefill_s": with_chunk_s,
                "step_without_s": without_s,
                "steps_with_prefill_share": sum(mixed) / len(mixed),
                "prefill_tokens": step.prefill_tokens,
                "decode_tokens": step.decode_tokens,
                "token_budget": step.token_budget,
                "itl_p99_s": replica.itl_s.p99,
            },
            confidence=min(1.0, sum(mixed) / len(mixed)),
            words=f"prefill interference: steps take {milliseconds(with_chunk_s)} ms with a chunk of a"
            f" prompt, {milliseconds(without_s)} ms without; {replica.running} run beside it",
            action=stop_tests(case) or _smaller_chunks(replica, step.token_budget, with_chunk_s, without_s),
        )


def _smaller_chunks(replica: Replica, budget: int, with_s: float, without_s: float) -> Proposal | None:
    """Half the budget, where that is still room for everybody who decodes. A batch may not be larger than the
    budget, so it is cut with it where it would be."""
    half = max(LEAST_BUDGET, replica.running or 0, budget // 2)
    if half >= budget:
        return None
    params, batch = {"token_budget": str(half)}, replica.limits.get("max_running", replica.max_running or 0)
    cut = f", batch {batch}→{half}" if batch > half else ""
    if cut:
        params["max_running"] = str(half)
    step_s = without_s + (with_s - without_s) * half / budget
    return Proposal(
        name="limits",
        target=replica.id,
        params=params,
        words=f"{replica.id}: token budget {budget}→{half}{cut}",
        effect=f"steps ~{milliseconds(step_s)} ms, prompts take {budget / half:.1f}× as long",
    )
