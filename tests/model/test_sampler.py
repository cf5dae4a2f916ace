from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from infer_engine.model.noise import gumbel
from infer_engine.model.randomness import draw_key
from infer_engine.model.sampler import sample
from infer_engine.model.sampling import Sampling

GREEDY = Sampling(temperature=0.0)


def draws(logits: torch.Tensor, parameters: Sampling, count: int) -> Counter[int]:
    return Counter(sample(logits.expand(count, -1), [parameters] * count, range(count)))


def test_greedy_takes_the_highest_and_the_lowest_id_of_a_tie() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0], [5.0, 1.0, 4.0]])
    assert sample(logits, [GREEDY, None], [0, 0]) == [1, 0]


@given(
    seed=st.integers(-(2**70), 2**70),
    position=st.integers(0, 100_000),
    temperature=st.floats(0.01, 2.0),
    top_p=st.floats(0.01, 1.0),
    top_k=st.integers(0, 60),
)
@settings(deadline=None, max_examples=60)
def test_the_choice_depends_on_nothing_else(
    seed: int, position: int, temperature: float, top_p: float, top_k: int
) -> None:
    torch.manual_seed(seed % 1000)
    logits = torch.randn(4, 50)
    own = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    other = Sampling(temperature=1.3, seed=seed + 1)
    alone = sample(logits[2:3], [own], [position])
    torch.rand(7)  # torch's own generator plays no part
    among = sample(logits, [GREEDY, other, own, other], [3, position, position, 9])
    assert among[2] == alone[0]


def test_frequencies_follow_the_distribution() -> None:
    logits = torch.tensor([1.0, 0.0, 2.0, -torch.inf, 1.5])
    expected = (logits / 0.8).softmax(0)
    counted = draws(logits, Sampling(temperature=0.8, seed=5), 4000)
    for token, share in enumerate(expected.tolist()):
        assert counted[token] / 4000 == pytest.approx(share, abs=0.03)
    assert counted[3] == 0


def test_top_k_keeps_the_highest_k() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0, 3.0])
    assert draws(logits, Sampling(temperature=2.0, top_k=2, seed=1), 200).keys() == {3, 1}
    assert draws(logits, Sampling(temperature=2.0, top_k=1, seed=1), 50).keys() == {3}
    assert draws(logits, Sampling(temperature=2.0, top_k=99, seed=1), 300).keys() == {0, 1, 2, 3}


def test_top_p_keeps_the_fewest_that_hold_the_mass() -> None:
    logits = torch.tensor([0.1, 0.5, 0.4]).log()
    assert draws(logits, Sampling(top_p=0.5, seed=1), 100).keys() == {1}
    assert draws(logits, Sampling(top_p=0.51, seed=1), 200).keys() == {1, 2}
    assert draws(logits, Sampling(top_p=0.000001, seed=1), 20).keys() == {1}
    assert draws(logits, Sampling(top_p=0.95, seed=1), 300).keys() == {0, 1, 2}


def test_top_p_over_a_flat_vocabulary_looks_beyond_the_first_candidates() -> None:
    logits = torch.linspace(1.0, 0.0, 5000)
    kept = draws(logits, Sampling(top_p=0.9, seed=3), 400).keys()
    before = logits.softmax(0).double().cumsum(0)
    assert max(kept) > 2000
    assert max(kept) <= int((before < 0.9).sum())


def test_a_broken_row_harms_no_other() -> None:
    good = torch.tensor([0.0, 1.0, 9.0])
    logits = torch.stack([torch.full((3,), torch.nan), good, torch.full((3,), -torch.inf)])
    hot = Sampling(temperature=1.0, top_p=0.9, seed=1)
    chosen = sample(logits, [hot, GREEDY, hot], [0, 0, 0])
    assert chosen[1] == 2
    assert all(0 <= token < 3 for token in chosen)


def test_a_tiny_temperature_is_greedy() -> None:
    assert draws(torch.tensor([1.0, 1.1, 0.9]), Sampling(temperature=1e-30, seed=2), 20).keys() == {1}


@pytest.mark.parametrize("temperature", [1e-300, 5e-324, 1e-45, 1e-20, 9e-6])
@pytest.mark.parametrize(("top_p", "top_k"), [(1.0, 0), (0.9, 0), (1.0, 5)])
def test_a_temperature_next_to_nothing_is_greedy(temperature: float, top_p: float, top_k: int) -> None:
    torch.manual_seed(1)
    logits = torch.randn(1, 50)
    parameters = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=3)
    assert draws(logits[0], parameters, 20) == {int(logits[0].argmax()): 20}


def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    assert draws(logits, Sampling(min_p=0.35, seed=1), 300).keys() == {0, 1}
    assert draws(logits, Sampling(min_p=0.2, seed=1), 300).keys() == {0, 1, 2}
    assert draws(logits, Sampling(min_p=1.0, seed=1), 50).keys() == {0}
    # Of the temperature's distribution, not of the raw one.
    assert draws(logits, Sampling(min_p=0.35, temperature=2.0, seed=1), 300).keys() == {0, 1, 2}


def test_top_k_counts_after_min_p_and_top_p_after_both() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    # Of the two that top_k leaves, the first holds 4/7.
    assert draws(logits, Sampling(top_k=2, top_p=0.57, seed=1), 100).keys() == {0}
    assert draws(logits, Sampling(top_k=2, top_p=0.58, seed=1), 200).keys() == {0, 1}
    assert draws(logits, Sampling(min_p=0.6, top_p=0.58, seed=1), 200).keys() == {0, 1}


def test_ties_with_the_last_of_top_k_stay() -> None:
    logits = torch.tensor([1.0, 3.0, 1.0, 3.0, 0.0])
    assert draws(logits, Sampling(temperature=2.0, top_k=3, seed=1), 300).keys() == {0, 1, 2, 3}


PARAMETERS = [
    Sampling(temperature=0.7, seed=1),
    Sampling(temperature=0.9, top_p=0.95, seed=2),
    Sampling(temperature=1.2, top_k=50, seed=3),
    Sampling(temperature=1.0, top_k=40, top_p=0.9, seed=4),
    Sampling(temperature=1.5, min_p=0.05, seed=5),
    Sampling(temperature=1.0, min_p=0.02, top_p=0.8, seed=6),
]


def test_over_a_whole_vocabulary_the_batch_changes_no_draw() -> None:
    torch.manual_seed(3)
    logits = torch.randn(32, 49_152) * 4
    rows = [PARAMETERS[row % len(PARAMETERS)] for row in range(32)]
    positions = list(range(32))
    together = sample(logits, rows, positions)
    assert together == [
        sample(logits[row : row + 1].clone(), [rows[row]], [positions[row]])[0] for row in range(32)
    ]
    assert together[5:20] == sample(logits[5:20], rows[5:20], positions[5:20])


def kept_by_definition(logits: torch.Tensor, one: Sampling) -> torch.Tensor:
    """Probabilities after temperature, min_p, top_k and top_p, each on the whole vocabulary as it is
    defined."""
    probabilities = (logits.double() / one.temperature).softmax(-1)
    if one.min_p:
        probabilities[probabilities < one.min_p * probabilities.max()] = 0
    if one.top_k:
        probabilities[probabilities < probabilities.sort(descending=True).values[one.top_k - 1]] = 0
    probabilities /= probabilities.sum()
    falling, ids = probabilities.sort(descending=True, stable=True)
    probabilities[ids[falling.cumsum(-1) - falling >= one.top_p]] = 0
    return probabilities / probabilities.sum()


def by_definition(logits: torch.Tensor, one: Sampling, position: int) -> int:
    """The draw with all of the vocabulary's noise, among what is kept by definition."""
    sums = logits.double().numpy() / one.temperature
    sums += gumbel(np.array(draw_key(one.seed, position), dtype=np.uint64), np.arange(len(sums)))
    return int(np.where(kept_by_definition(logits, one).numpy() > 0, sums, -np.inf).argmax())


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(
    "one", [*PARAMETERS, Sampling(top_p=0.6, min_p=1e-4, seed=7), Sampling(top_k=5000, top_p=0.7, seed=8)]
)
def test_what_is_not_looked_at_could_not_be_drawn(one: Sampling, scale: float) -> None:
    torch.manual_seed(4)
    logits = torch.randn(10_001) * scale  # no whole number of blocks
    drawn = sample(logits.expand(12, -1), [one] * 12, range(12))
    assert drawn == [by_definition(logits, one, position) for position in range(12)]


def chi_square(counted: Counter[int], expected: torch.Tensor, draws: int) -> float:
    """In standard deviations of its distribution above its mean; what is expected less than 5 times is put
    together."""
    observed = torch.tensor([counted[token] for token in range(len(expected))], dtype=torch.float64)
    wanted = expected.double() * draws
    often = wanted >= 5
    observed = torch.cat([observed[often], observed[~often].sum().unsqueeze(0)])
    wanted = torch.cat([wanted[often], wanted[~often].sum().unsqueeze(0)])
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    freedom = len(wanted) - 1
    return float(((observed - wanted) ** 2 / wanted).sum() - freedom) / (2 * freedom) ** 0.5


@pytest.mark.parametrize("shape", ["peaked", "flat", "steep", "blocks"])
@pytest.mark.parametrize("one", PARAMETERS)
def test_draws_follow_the_distribution(one: Sampling, shape: str) -> None:
    torch.manual_seed(5)
    logits = {
        "peaked": torch.randn(300) * 3,
        "flat": torch.zeros(150),
        "steep": torch.linspace(0.0, 12.0, 700),
        "blocks": torch.arange(400) % 64 * 0.05,
    }[shape]
    expected = kept_by_definition(logits, one)
    counted = draws(logits, one, 1500)
    assert all(expected[token] > 0 for token in counted)
    assert chi_square(counted, expected, 1500) < 4


def test_noise_in_the_logits_shifts_hardly_a_draw() -> None:
    """Where it does, the two highest sums were as close as the noise is strong."""
    torch.manual_seed(6)
    logits = torch.randn(200, 10_000) * 2
    noisy = logits + torch.randn_like(logits) * 1e-5
    one = Sampling(seed=9)
    before, after = (sample(some, [one] * 200, range(200)) for some in (logits, noisy))
    assert len(set(before)) > 150
    assert sum(a != b for a, b in zip(before, after, strict=True)) <= 1


def test_equal_sums_go_to_the_lowest_id(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(keys: np.ndarray, ids: np.ndarray) -> np.ndarray:
        return np.zeros(np.broadcast_shapes(np.shape(keys), ids.shape))

    monkeypatch.setattr("infer_engine.model.sampler.gumbel", silent)
    monkeypatch.setattr("infer_engine.model.sampler.highest_gumbel", silent)
    logits = torch.zeros(2, 300)
    logits[:, [70, 71, 200]] = 3.0
    for one in (Sampling(), Sampling(top_k=5)):
        assert sample(logits, [one, one], [0, 1]) == [70, 70]
