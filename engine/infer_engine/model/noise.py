"""Gumbel noise of tokens: a pure function of a draw's key and the token's id.

Gumbel noise is ``-log`` of a number from the exponential distribution with rate 1. Of BLOCK such numbers the
least is exponential with rate BLOCK and as likely to be anywhere; the others exceed it by exponential numbers
of rate 1, for these have no memory. So the ids are taken in blocks of BLOCK, and a block's least number and
its place are drawn first, then each id's excess over it: together just as if each id had been drawn by
itself, but one number for each block bounds the noise of all its ids (top-down sampling of A* sampling, arXiv
1411.0030). Who looks for a maximum need not draw most of them.

A draw's numbers are the outputs of a SplitMix64 generator whose state is the draw's key: that with number
``id`` is the id's, that with number ``-1 - block`` is the block's.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Keys = NDArray[np.uint64]

#: A power of two: the place of the least number is a few bits.
BLOCK = 64

_STEP = np.uint64(0x9E3779B97F4A7C15)


def gumbel(keys: Keys, ids: Ids) -> Floats:
    """Noise of ``ids``; ``keys`` and ``ids`` broadcast."""
    blocks, places = np.divmod(ids, BLOCK)
    words = _words(keys, -1 - blocks)
    is_least = (words % np.uint64(BLOCK)).astype(np.int64) == places
    excess = np.where(is_least, 0.0, _exponential(_words(keys, ids)))
    return -np.log(_exponential(words) / BLOCK + excess)


def highest_gumbel(keys: Keys, blocks: Ids) -> Floats:
    """The highest noise among the ids of each of ``blocks``, of which block b has those from b * BLOCK on."""
    return -np.log(_exponential(_words(keys, -1 - blocks)) / BLOCK)


def _exponential(words: Keys) -> Floats:
    """From the 52 highest bits: above 0 and below 37, finely divided towards 0."""
    return -np.log(((words >> np.uint64(12)).astype(np.float64) + 0.5) / (1 << 52))


def _words(keys: Keys, numbers: Ids) -> Keys:
    """Output ``numbers`` (modulo 2**64) of the generators with the states ``keys``."""
    z = keys + (numbers.astype(np.uint64) + np.uint64(1)) * _STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
