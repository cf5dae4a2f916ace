"""The napkin arithmetic of serving: how many bytes a token's KV takes, how many sequences fit, how fast a
step can be.

Pure functions of a model's shape and a GPU's data sheet. Bytes are exact; GB are 10^9 bytes. Times are
floors: what the memory bandwidth and the matrix rate allow, which no real system reaches.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from infer_engine.config_shape import ConfigShape, shape_of_config
from infer_engine.presets import ALIASES, GPUS, MODELS, gpu_named, model_named
from infer_engine.shapes import Gpu, ModelShape, PlanError, pairs_of

__all__ = [
    "ALIASES",
    "GPUS",
    "MODELS",
    "MOST_GPUS",
    "ConfigShape",
    "Deployment",
    "Gpu",
    "ModelShape",
    "PlanError",
    "gigabytes",
    "gpu_named",
    "model_named",
    "parse_deployment",
    "shape_of_config",
]

#: Most GPUs under one copy of a model.
MOST_GPUS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One copy of a model over ``gpus`` equal GPUs, weights and KV divided evenly. Communication is not
    counted."""

    model: ModelShape
    gpu: Gpu
    gpus: int = 1
    #: Share of the memory that activations and the runtime take: 5 GB of 80.
    activation_share: float = 1 / 16

    def __str__(self) -> str:
        return f"{self.model.name}@{self.gpus}×{self.gpu.name}"

    @property
    def device(self) -> str:
        """The GPUs of one copy, such as ``4×H100``."""
        return f"{self.gpus}×{self.gpu.name.upper()}"

    @property
    def memory_bytes(self) -> int:
        return self.gpu.memory_bytes * self.gpus

    @property
    def activation_bytes(self) -> int:
        return int(self.memory_bytes * self.activation_share)

    @property
    def kv_bytes(self) -> int:
        """What is left for KV; raises PlanError where weights and activations alone do not fit."""
        left = self.memory_bytes - self.model.weight_bytes - self.activation_bytes
        if left <= 0:
            raise PlanError(
                f"{self} does not fit: {gigabytes(self.memory_bytes)} of memory, "
                f"{gigabytes(self.model.weight_bytes)} of weights, "
                f"{gigabytes(self.activation_bytes)} of activations"
            )
        return left

    @property
    def gpus_needed(self) -> int | None:
        """The fewest such GPUs that leave something for KV; None where even the most do not."""
        for_weights = self.gpu.memory_bytes * (1 - self.activation_share)
        needed = int(self.model.weight_bytes // for_weights) + 1
        return needed if needed <= MOST_GPUS else None

    @property
    def kv_tokens(self) -> int:
        return self.kv_bytes // self.model.kv_bytes_per_token

    def kv_blocks(self, block_size: int) -> int:
        return self.kv_tokens // block_size

    def sequences(self, context: int, used_ratio: float = 1.0) -> int:
        """Sequences of ``context`` tokens that fit when ``used_ratio`` of the KV memory is in use."""
        return int(self.kv_tokens * used_ratio / context)

    @property
    def bandwidth_bytes_per_s(self) -> float:
        return self.gpu.bandwidth_bytes_per_s * self.gpus

    @property
    def flops_per_s(self) -> float:
        return self.gpu.flops_per_s * self.gpus

    def step_s(self, chunks: Iterable[tuple[int, int]]) -> float:
        """Floor of one step that computes, for each sequence in the batch, tokens ``start .. start + count``
        (a decode is a count of 1): the longer of reading the weights once and all the KV, and of the
        FLOPs."""
        tokens = context = 0
        pairs = 0.0
        for start, count in chunks:
            tokens += count
            context += start + count
            pairs += count * (start + (count + 1) / 2)  # ``pairs_of``, written out: it is called a lot
        if context == 0:
            return 0.0
        flops = self.model.flops_of(tokens, pairs)
        read_bytes = self.model.weight_bytes + context * self.model.kv_bytes_per_token
        return max(read_bytes / self.bandwidth_bytes_per_s, flops / self.flops_per_s)

    def swap_s(self, tokens: int) -> float:
        """Floor of moving the KV of so many tokens to or from host memory."""
        return tokens * self.model.kv_bytes_per_token / (self.gpu.host_bytes_per_s * self.gpus)

    def decode_step_s(self, sequences: int, context: int) -> float:
        """Floor of a decode step of equal sequences with ``context`` tokens of KV each; with 0 the weights
        alone."""
        read_bytes = self.model.weight_bytes + sequences * context * self.model.kv_bytes_per_token
        flops = sequences * self.model.flops(context, 1)
        return max(read_bytes / self.bandwidth_bytes_per_s, flops / self.flops_per_s)

    def prefill_s(self, tokens: int) -> float:
        """Floor of computing a prompt of ``tokens`` in one pass, alone."""
        return self.step_s([(0, tokens)])

    def prefill_parts_s(self, tokens: int) -> tuple[float, float]:
        """What of computing a prompt grows with its length, and what with its square."""
        pairs = pairs_of(0, tokens)
        linear, quadratic = self.model.flops_of(tokens, 0), self.model.attention_flops_per_pair * pairs
        return linear / self.flops_per_s, quadratic / self.flops_per_s

    def compute_bound_from(self, context: int) -> int | None:
        """The fewest sequences of ``context`` tokens with which a decode step waits for FLOPs and no longer
        for memory; None where no batch is large enough, because each further sequence has more KV to read
        than FLOPs to compute."""
        compute_s = self.model.flops(context, 1) / self.flops_per_s
        read_s = context * self.model.kv_bytes_per_token / self.bandwidth_bytes_per_s
        if compute_s <= read_s:
            return None
        weights_s = self.model.weight_bytes / self.bandwidth_bytes_per_s
        return max(1, math.ceil(weights_s / (compute_s - read_s)))

    def memory_bound_context(self) -> float | None:
        """Tokens of context from which decode waits for memory at any batch; None where attention costs more
        FLOPs than its KV costs reading, however long it is."""
        per_token_s = self.model.kv_bytes_per_token / self.bandwidth_bytes_per_s
        per_token_s -= self.model.attention_flops_per_pair / self.flops_per_s
        return self.model.flops(0, 1) / self.flops_per_s / per_token_s if per_token_s > 0 else None


def parse_deployment(text: str) -> Deployment:
    """``MODEL@N×GPU`` (or ``NxGPU``, or ``GPU`` alone), such as ``70b@4×h100``; raises PlanError."""
    match = re.fullmatch(r"([^@]+)@(?:([0-9]{1,4})[x×])?([^@]+)", text)
    gpus = int(match[2] or 1) if match else 0
    if match is None or not 1 <= gpus <= MOST_GPUS:
        raise PlanError(
            f"{text!r} given, MODEL@N×GPU wanted, such as 70b@4×h100: N GPUs (1 to {MOST_GPUS}) "
            "under one copy of the model"
        )
    return Deployment(model=model_named(match[1]), gpu=gpu_named(match[3]), gpus=gpus)


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB"
