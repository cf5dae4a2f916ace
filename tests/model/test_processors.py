"""Penalties, bias and masks against their formulas, written out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from infer_engine.model.processors import Adjustments, TokenCounts, bias_arrays
from infer_engine.model.sampling import Sampling

VOCABULARY = 40


def expected(row: list[float], one: Sampling, prompt: list[int], output: list[int]) -> list[float]:
    """Token by token, as the formulas say it."""
    result: list[float] = []
    for token, logit in enumerate(row):
        logit += one.logit_bias.get(token, 0.0)
        if token in prompt or token in output:
            logit = logit / one.repetition_penalty if logit > 0 else logit * one.repetition_penalty
        count = output.count(token)
        result.append(logit - count * one.frequency_penalty - (count > 0) * one.presence_penalty)
    return result


def counted(prompt: list[int], output: list[int]) -> TokenCounts:
    counts = TokenCounts(prompt, VOCABULARY)
    for token in output:
        counts.add(token)
    return counts


@given(
    prompt=st.lists(st.integers(0, VOCABULARY - 1), max_size=200),
    output=st.lists(st.integers(0, VOCABULARY - 1), max_size=200),
    repetition=st.floats(0.1, 5),
    presence=st.floats(-2, 2),
    frequency=st.floats(-2, 2),
    bias=st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-100, 100), max_size=5),
)
@settings(deadline=None, max_examples=50)
def test_penalties_and_bias_are_their_formulas(
    prompt: list[int],
    output: list[int],
    repetition: float,
    presence: float,
    frequency: float,
    bias: dict[int, float],
) -> None:
    one = Sampling(
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        logit_bias=bias,
    )
    torch.manual_seed(len(prompt))
    logits = torch.randn(3, VOCABULARY)
    before = logits.clone()
    adjustments = Adjustments(VOCABULARY)
    biases = bias_arrays(one, VOCABULARY)
    if biases is not None:
        adjustments.bias(1, *biases)
    adjustments.penalize(1, one, counted(prompt, output))
    adjustments.apply(logits)
    assert torch.equal(logits[[0, 2]], before[[0, 2]])
    assert logits[1].tolist() == pytest.approx(
        expected(before[1].tolist(), one, prompt, output), rel=1e-4, abs=1e-4
    )


def test_many_new_tokens_outgrow_the_first_arrays() -> None:
    counts = TokenCounts([3, 3], 10_000)
    for token in (*range(5_000), 7):
        counts.add(token)
    by_id = dict(zip(counts.ids.tolist(), counts.counts.tolist(), strict=True))
    assert len(by_id) == 5_000
    assert (by_id[7], by_id[3], by_id[4_999]) == (2, 1, 1)


def test_impossible_ids_are_taken_as_the_model_takes_them() -> None:
    counts = TokenCounts([-5, 10**6], VOCABULARY)
    counts.add(-1)
    counts.add(10**9)
    assert dict(zip(counts.ids.tolist(), counts.counts.tolist(), strict=True)) == {0: 1, VOCABULARY - 1: 1}


def test_masks_leave_minus_infinity_whatever_else_is_done() -> None:
    one = Sampling(logit_bias={4: 100.0}, repetition_penalty=0.5)
    logits = torch.zeros(2, VOCABULARY)
    allowed = np.zeros(VOCABULARY, dtype=np.bool_)
    allowed[[2, 4, 5]] = True
    adjustments = Adjustments(VOCABULARY)
    adjustments.allow(1, allowed)
    adjustments.ban(1, np.array([4]))
    biases = bias_arrays(one, VOCABULARY)
    assert biases is not None
    adjustments.bias(1, *biases)
    adjustments.penalize(1, one, counted([1, 4], [2]))
    adjustments.apply(logits)
    assert (logits[1] > -torch.inf).nonzero().squeeze(-1).tolist() == [2, 5]
    assert torch.equal(logits[0], torch.zeros(VOCABULARY))


@pytest.mark.parametrize("repetition", [1e-320, 1e-50, 1e-40, 10.0])
def test_an_extreme_penalty_lets_nothing_through_that_may_not_come(repetition: float) -> None:
    one = Sampling(repetition_penalty=repetition)
    logits = torch.linspace(-30, 30, VOCABULARY).repeat(2, 1)
    allowed = np.ones(VOCABULARY, dtype=np.bool_)
    allowed[[1, 39]] = False
    adjustments = Adjustments(VOCABULARY)
    adjustments.allow(1, allowed)
    adjustments.ban(1, np.array([4]))
    adjustments.penalize(1, one, counted([1, 4, 5, 20, 36, 38, 39], [37, 38]))
    adjustments.apply(logits)
    assert (logits[1] == -torch.inf).nonzero().squeeze(-1).tolist() == [1, 4, 39]
    assert int(logits[1].isfinite().sum()) == VOCABULARY - 3
