"""On the default model, as it runs by default: what is drawn for a request does not depend on its
neighbours, nor on what preemption made it compute again, except where two tokens tie."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from infer_engine.core.plan import Chunk, Plan
from infer_engine.core.request import Request
from infer_engine.core.swap import HostPool
from infer_engine.model.noise import gumbel
from infer_engine.model.randomness import draw_key
from infer_engine.model.sampling import Constraint, Sampling
from infer_engine.runner import token_chooser
from infer_engine.runner.runner import Runner
from support.running import make_request, make_runner, run_all

CASES = Path(__file__).parents[1] / "model" / "expected_ids.json"
EOS = 2
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "items": {"type": "array", "items": {"type": "string"}}},
    "required": ["name", "items"],
    "additionalProperties": False,
}
PARAMETERS = [
    Sampling(seed=1),
    Sampling(seed=2, top_p=0.9),
    Sampling(seed=3, top_k=40),
    Sampling(seed=4, min_p=0.05),
    Sampling(
        seed=5,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=0.3,
        constraint=Constraint(kind="json_schema", source=json.dumps(SCHEMA)),
    ),
]
#: Two sums of logit and noise this close may change places with the order of summation.
TIE = 1e-3


def batch() -> list[Request]:
    prompts: list[list[int]] = [case["prompt"] for case in json.loads(CASES.read_text())["cases"]]
    requests = [
        make_request(f"{at}/{one.seed}", prompts[at], max_tokens=20, sampling=one)
        for at in (0, 8)
        for one in PARAMETERS
    ]
    for request in requests:
        request.stop_token_ids = frozenset({EOS})
    return requests


@dataclass(slots=True)
class Difference:
    request: Request
    expected: list[int]

    def gap(self, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> float:
        """Between the sums of the first two tokens that differ, after what both have in common."""
        pairs = list(zip(self.expected, self.request.output, strict=False))
        at = next(n for n, (a, b) in enumerate(pairs) if a != b)
        forced = make_request("forced", self.request.prompt, 99, self.request.sampling)
        forced.stop_token_ids = self.request.stop_token_ids
        forced.output = self.expected[:at]
        forced.block_table = list(range(-(-forced.total_tokens // runner.info.block_size)))
        adjusted: list[torch.Tensor] = []
        sample = token_chooser.sample

        def recorded(logits: torch.Tensor, *rest: object) -> list[int]:
            adjusted.append(logits.clone())
            return sample(logits, *rest)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(token_chooser, "sample", recorded)
            runner.execute(Plan(step=1, chunks=[Chunk(forced, 0, forced.total_tokens, samples=True)]))
        ids = np.array(pairs[at])
        key = np.array(draw_key(forced.sampling.seed, forced.total_tokens), dtype=np.uint64)
        first, second = adjusted[0][0].double().numpy()[ids] + gumbel(key, ids)
        return abs(first - second)


@pytest.mark.model
@pytest.mark.apart
@pytest.mark.timeout(900)
def test_the_batch_and_preemption_change_no_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(device="cpu", kv_blocks=128, host_blocks=64)
    alone = {request.id: request for request in batch()}
    for request in alone.values():
        run_all(runner, [request])
    differences: list[Difference] = []
    for mode in ("swap", "recompute"):
        together = batch()
        host = HostPool(64 if mode == "swap" else 0, mode)
        scheduler = run_all(runner, together, token_budget=48, kv_blocks=17, host=host)
        assert scheduler.counters.preemptions > 0
        assert bool(scheduler.counters.swaps) == (mode == "swap")
        differences += [
            Difference(request, alone[request.id].output)
            for request in together
            if request.output != alone[request.id].output
        ]
    gaps = [one.gap(runner, monkeypatch) for one in differences]
    assert all(gap < TIE for gap in gaps), gaps
    assert len(gaps) <= 1
    assert len({tuple(request.output) for request in alone.values()}) == len(alone)
    runner.close()
