"""How likely the model found a token, and what else it found likely: data only, no torch."""

from msgspec import Struct

from infer_engine.counts import Count


class TokenLogprobs(Struct, frozen=True, array_like=True):
    """Natural logarithms of probabilities: the log-softmax of the model's raw logits in fp32, before
    penalties, masks and temperature. ``top_ids`` are the most likely tokens in falling order, as many as were
    asked for, with their ``top_logprobs``; the chosen one need not be among them."""

    logprob: float
    top_ids: list[Count] = []
    top_logprobs: list[float] = []
