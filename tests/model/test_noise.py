import numpy as np
import pytest
from infer_engine.model.noise import BLOCK, Floats, gumbel, highest_gumbel
from infer_engine.model.randomness import draw_key


def keys_of(seeds: range, positions: range) -> np.ndarray:
    return np.array([[draw_key(seed, position) for position in positions] for seed in seeds], dtype=np.uint64)


def shares(noise: Floats) -> Floats:
    """Where each is in Gumbel's distribution: uniform in [0, 1) if the noise is Gumbel's."""
    return np.exp(-np.exp(-noise))


def chi_square(counts: np.ndarray) -> float:
    """Of counts that should be equal, in standard deviations above the mean."""
    wanted = counts.mean()
    freedom = counts.size - 1
    return float(((counts - wanted) ** 2 / wanted).sum() - freedom) / (2 * freedom) ** 0.5


def joint(a: Floats, b: Floats, bins: int = 16) -> float:
    return chi_square(np.histogram2d(a.ravel(), b.ravel(), bins=bins, range=[[0, 1], [0, 1]])[0])


@pytest.fixture(scope="module")
def uniform() -> Floats:
    """[seed, position, id], of neighbours in each."""
    return shares(gumbel(keys_of(range(-4, 12), range(40))[..., None], np.arange(1024)))


def test_it_is_gumbels(uniform: Floats) -> None:
    assert chi_square(np.histogram(uniform, bins=1000, range=(0, 1))[0]) < 4
    # In its tail, where draws are decided.
    assert chi_square(np.histogram(uniform, bins=20, range=(0.999, 1))[0]) < 4
    assert len(np.unique(uniform)) == uniform.size


def test_each_place_of_a_block_is_alike(uniform: Floats) -> None:
    blocks = uniform.reshape(-1, BLOCK)
    assert chi_square(np.bincount(blocks.argmax(-1), minlength=BLOCK)) < 4
    for place in (0, 1, 31, 63):
        assert chi_square(np.histogram(blocks[:, place], bins=50, range=(0, 1))[0]) < 4


@pytest.mark.parametrize("distance", [1, 2, 3, 16, 63, 64, 65, 512])
def test_ids_are_independent(uniform: Floats, distance: int) -> None:
    assert joint(uniform[..., :-distance], uniform[..., distance:]) < 4


@pytest.mark.parametrize("distance", [1, 2, 7, 15])
def test_seeds_and_positions_are_independent(uniform: Floats, distance: int) -> None:
    assert joint(uniform[:-distance], uniform[distance:]) < 4
    assert joint(uniform[:, :-distance], uniform[:, distance:]) < 4
    # The next seed at the position before.
    assert joint(uniform[distance:, :-distance], uniform[:-distance, distance:]) < 4


def test_a_blocks_highest_noise_is_that_of_one_of_its_ids() -> None:
    keys = keys_of(range(3), range(5))
    blocks = np.array([0, 1, 700, 2000])
    ids = blocks[:, None] * BLOCK + np.arange(BLOCK)
    noise = gumbel(keys[..., None, None], ids)
    assert (noise.max(-1) == highest_gumbel(keys[..., None], blocks)).all()


def test_any_seed_and_position_has_noise_of_its_own() -> None:
    pairs = [
        (seed, position) for seed in (-(2**63), -1, 0, 1, 2**63 - 1, 2**64 + 5) for position in (0, 1, 2**40)
    ]
    keys = np.array([draw_key(*pair) for pair in pairs], dtype=np.uint64)
    noise = gumbel(keys[:, None], np.array([0, 1, 63, 64, 49_151, 10**6]))
    assert np.isfinite(noise).all()
    assert len(np.unique(noise)) == noise.size


def test_it_stays_what_it_was() -> None:
    """Seeds that users keep go on giving the same answers."""
    noise = gumbel(np.array(draw_key(42, 7), dtype=np.uint64), np.array([0, 1, 64, 49_151]))
    assert noise.tolist() == pytest.approx(
        [-0.9257295788116031, 3.277728971712908, -0.8337136349213053, 0.7170764136921778], abs=1e-12
    )
