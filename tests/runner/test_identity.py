"""The engine against Hugging Face transformers on the same model file (see
tests/model/make_expected_ids.py)."""

import json
from pathlib import Path

import pytest
from support.running import make_request, make_runner, run_all

EXPECTED = Path(__file__).parents[1] / "model" / "expected_ids.json"
#: Two logits this close may change places with the order of summation.
TIE = 1e-3
MOST_TIES = 1


@pytest.mark.model
def test_sixteen_prompts_continue_as_in_transformers() -> None:
    """64 greedy tokens of each, in fp32, all in one rolling batch with chunked prefill."""
    cases = json.loads(EXPECTED.read_text())["cases"]
    assert len(cases) == 16
    runner = make_runner(dtype="fp32", device="cpu", kv_blocks=192)
    requests = [make_request(index, case["prompt"], max_tokens=64) for index, case in enumerate(cases)]
    run_all(runner, requests, token_budget=256)
    ties = 0
    for request, case in zip(requests, cases, strict=True):
        assert len(request.output) == len(case["expected"]) == 64
        different = [n for n in range(64) if request.output[n] != case["expected"][n]]
        if different:
            ties += 1
            assert case["gaps"][different[0]] < TIE, f"prompt {request.id} differs at token {different[0]}"
    assert ties <= MOST_TIES
