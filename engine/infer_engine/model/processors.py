"""What is done to the logits of a row before a token is chosen, for rows that ask for it.

In this order, which is that of vLLM's V1 sampler:

1. tokens that may not come get minus infinity: what the constraint's grammar does not allow, and stop tokens
   before ``min_tokens``;
2. ``logit_bias`` is added (OpenAI's API reference: the bias is added to the logits prior to sampling);
3. ``repetition_penalty`` of tokens in prompt or output: a positive logit is divided by it, another multiplied
   (CTRL, arXiv 1909.05858, section 4.1, with the sign handled as in transformers and vLLM);
4. ``logit -= count * frequency_penalty + (count > 0) * presence_penalty``, where ``count`` is how often the
   token is in the output (the formula of OpenAI's API guide; the prompt does not count).

All rows together are one gather and one scatter, and the masked ones one fill.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from infer_engine.model.sampling import Sampling

Ids = NDArray[np.int64]
Values = NDArray[np.float32]
Allowed = NDArray[np.bool_]

#: A repetition penalty below this counts as this. Dividing by less leaves no finite logits; and in fp32 it
#: can be zero, times which the minus infinity of what may not come is no number, and that is chosen.
_LEAST_REPETITION = 1e-30


class TokenCounts:
    """How often each token of one request is in its output, for those that are in prompt or output."""

    def __init__(self, prompt: Sequence[int], vocabulary: int) -> None:
        """Ids are taken into the vocabulary as the model takes them."""
        self._vocabulary = vocabulary
        self._slots: dict[int, int] = {}
        ids = np.unique(np.clip(np.asarray(prompt, dtype=np.int64), 0, vocabulary - 1))
        self._slots = {int(id): slot for slot, id in enumerate(ids)}
        self._ids = np.concatenate((ids, np.zeros(64, dtype=np.int64)))
        self._counts = np.zeros(len(self._ids), dtype=np.float32)

    def add(self, token: int) -> None:
        token = min(max(token, 0), self._vocabulary - 1)
        slot = self._slots.setdefault(token, len(self._slots))
        if slot == len(self._ids):
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[slot] = token
        self._counts[slot] += 1

    @property
    def ids(self) -> Ids:
        return self._ids[: len(self._slots)]

    @property
    def counts(self) -> Values:
        return self._counts[: len(self._slots)]


class Adjustments:
    """Collects what is to be done to the rows of one step's logits, then does it."""

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._masks: list[tuple[int, Allowed]] = []
        self._banned: list[Ids] = []
        self._biased: list[Ids] = []
        self._biases: list[Values] = []
        self._seen: list[Ids] = []
        self._repetition: list[Values] = []
        self._subtracted: list[Values] = []

    def allow(self, row: int, allowed: Allowed) -> None:
        """Nothing but what ``allowed`` [vocab] says."""
        self._masks.append((row, allowed))

    def ban(self, row: int, ids: Ids) -> None:
        self._banned.append(ids + row * self._vocabulary)

    def bias(self, row: int, ids: Ids, values: Values) -> None:
        self._biased.append(ids + row * self._vocabulary)
        self._biases.append(values)

    def penalize(self, row: int, one: Sampling, counts: TokenCounts) -> None:
        self._seen.append(counts.ids + row * self._vocabulary)
        repetition = max(one.repetition_penalty, _LEAST_REPETITION)
        self._repetition.append(np.full(len(counts.ids), repetition, dtype=np.float32))
        self._subtracted.append(
            (counts.counts * one.frequency_penalty + (counts.counts > 0) * one.presence_penalty).astype(
                np.float32
            )
        )

    def apply(self, logits: torch.Tensor) -> None:
        """Change ``logits``, contiguous fp32 [S, vocab], in place."""
        flat = logits.view(-1)

        def there(arrays: Sequence[NDArray[np.generic]]) -> torch.Tensor:
            return torch.from_numpy(np.concatenate(arrays)).to(logits.device)

        if self._masks:
            rows = torch.tensor([row for row, _ in self._masks], device=logits.device)
            allowed = torch.from_numpy(np.stack([mask for _, mask in self._masks])).to(logits.device)
            logits[rows] = logits[rows].masked_fill_(~allowed, -torch.inf)
        if self._banned:
            flat[there(self._banned)] = -torch.inf
        if self._biased:
            flat[there(self._biased)] += there(self._biases)
        if self._seen:
            seen, factor = there(self._seen), there(self._repetition)
            values = flat[seen]
            values = torch.where(values > 0, values / factor, values * factor)
            flat[seen] = values - there(self._subtracted)


def bias_arrays(one: Sampling, vocabulary: int) -> tuple[Ids, Values] | None:
    """Ids beyond the vocabulary, which a checked request does not have, are left out."""
    biases = {id: value for id, value in one.logit_bias.items() if 0 <= id < vocabulary}
    if not biases:
        return None
    return np.fromiter(biases.keys(), dtype=np.int64), np.fromiter(biases.values(), dtype=np.float32)
