"""Chooses the next token of each row: a pure function of the row's logits, its parameters, its seed and its
position.

Temperature first, then what is too unlikely goes, in this order: ``min_p`` (keep what has at least that share
of the likeliest token's probability), ``top_k`` (keep the k likeliest; those that tie with the last of them
stay), ``top_p`` (of what is left, renormalised, keep the fewest that hold the mass). The order is that of
vLLM's V1 sampler; min_p as in arXiv 2407.01082, top_p as in arXiv 1904.09751.

Of the rest one is drawn by the Gumbel-max trick (arXiv 1411.0030, section 2): where each token's noise is
Gumbel's and its own, ``argmax(logit / temperature + noise)`` is distributed as the softmax of
``logit / temperature``. A token's noise depends on nothing but seed, position and its id. So logits that
differ a little (another batch shape adds them up in another order) draw another token only where the two
highest sums are that close.

No operation lets one row's result depend on its neighbours or on how many there are.
"""

from collections.abc import Sequence

import numpy as np
import torch

from infer_engine.model.candidates import Candidates, all_candidates, cuts, few_candidates, surely_keeps
from infer_engine.model.noise import BLOCK, Keys, gumbel, highest_gumbel
from infer_engine.model.randomness import draw_key
from infer_engine.model.sampling import Sampling

#: Below this the most likely token has all the mass that numbers can tell apart, and far below it dividing by
#: the temperature gives no numbers: greedy.
_COLDEST = 1e-5


def is_drawn(one: Sampling | None) -> bool:
    """Not greedy."""
    return one is not None and one.temperature >= _COLDEST


def sample(
    logits: torch.Tensor, parameters: Sequence[Sampling | None], positions: Sequence[int]
) -> list[int]:
    """``logits`` fp32 [S, vocab] on the CPU; ``positions`` are those of the tokens being chosen. None is
    greedy. Ties go to the lowest id. Rows without a finite logit give some id, never an error."""
    chosen = [0] * len(parameters)
    greedy = [row for row, one in enumerate(parameters) if not is_drawn(one)]
    whole: list[tuple[int, Sampling]] = []
    cut: list[tuple[int, Sampling]] = []
    for row, one in enumerate(parameters):
        if one is not None and is_drawn(one):
            (cut if cuts(one) else whole).append((row, one))

    def put(rows: Sequence[int], tokens: Sequence[int]) -> None:
        for row, token in zip(rows, tokens, strict=True):
            chosen[row] = token

    if greedy:
        put(greedy, _rows(logits, greedy).argmax(dim=-1).tolist())
    # A broken model's logits may be no numbers.
    with np.errstate(invalid="ignore"):
        for drawn, draw in ((whole, _draw_of_all), (cut, _draw_of_candidates)):
            if drawn:
                rows, asked = [row for row, _ in drawn], [one for _, one in drawn]
                keys = np.array([draw_key(one.seed, positions[row]) for row, one in drawn], dtype=np.uint64)
                put(rows, draw(_rows(logits, rows), asked, keys))
    return chosen


def _rows(logits: torch.Tensor, rows: list[int]) -> torch.Tensor:
    return logits if len(rows) == len(logits) else logits[rows]


def _draw_of_candidates(logits: torch.Tensor, parameters: Sequence[Sampling], keys: Keys) -> list[int]:
    """Where many tokens are kept, most draws from all tokens are of one that is kept, and then it is the
    highest of those too."""
    kept = few_candidates(logits, parameters)
    chosen = [
        0 if few is None else _highest(few, parameters[row], keys[row, None]) for row, few in enumerate(kept)
    ]
    many = [row for row, few in enumerate(kept) if few is None]
    if many:
        drawn = _draw_of_all(logits[many], [parameters[row] for row in many], keys[many])
        for row, id in zip(many, drawn, strict=True):
            values, one = logits[row].numpy(), parameters[row]
            if not surely_keeps(values, one, id):
                id = _highest(all_candidates(values, one), one, keys[row, None])
            chosen[row] = id
    return chosen


def _highest(candidates: Candidates, one: Sampling, key: Keys) -> int:
    ids, logits = candidates
    sums = logits / one.temperature + gumbel(key, ids)
    highest = ids[sums == sums.max()]
    return int(highest.min()) if len(highest) else 0


def _draw_of_all(logits: torch.Tensor, parameters: Sequence[Sampling], keys: Keys) -> list[int]:
    """Draws noise only for the tokens that can win: a token's sum is at most its score and the highest noise
    of its block, and at least one sum is known."""
    rows, vocabulary = logits.shape
    blocks = torch.nn.functional.pad(logits, (0, -vocabulary % BLOCK), value=-torch.inf).view(rows, -1, BLOCK)
    values = blocks.numpy()
    temperatures = np.array([one.temperature for one in parameters])
    scores = blocks.amax(-1).numpy() / temperatures[:, None]
    noise = highest_gumbel(keys[:, None], np.arange(scores.shape[1]))
    bounds = scores + noise

    # What the block with the highest bound and that of the likeliest token reach.
    every = np.arange(rows)
    known = np.full(rows, -np.inf)
    for block in (bounds.argmax(-1), scores.argmax(-1)):
        ids = block[:, None] * BLOCK + np.arange(BLOCK)
        sums = values[every, block] / temperatures[:, None] + gumbel(keys[:, None], ids)
        known = np.maximum(known, sums.max(-1))
    row, block = np.nonzero((bounds >= known[:, None]) & (scores > -np.inf))
    of_tokens = values[row, block] / temperatures[row, None] + noise[row, block, None]
    pair, place = np.nonzero(of_tokens >= known[row, None])
    row, block = row[pair], block[pair]
    ids = block * BLOCK + place
    sums = values[row, block, place] / temperatures[row] + gumbel(keys[row], ids)
    # By row, the highest, then the lowest id, first.
    order = np.lexsort((ids, -sums, row))
    found, first = np.unique(row[order], return_index=True)
    chosen = np.zeros(rows, dtype=np.int64)
    chosen[found] = ids[order][first]
    return chosen.tolist()
