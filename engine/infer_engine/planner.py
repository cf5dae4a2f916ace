"""The napkin arithmetic of serving: how many bytes a token's KV takes, how many sequences fit, how fast a
step can be.

Pure functions of a model's shape and a GPU's data sheet. Bytes are exact; GB are 10^9 bytes. Times are
floors: what the memory bandwidth and the matrix rate allow, which no real system reaches.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

#: Most GPUs under one copy of a model.
MOST_GPUS = 1024


class PlanError(ValueError):
    """An unknown name, or a model that does not fit; ``str()`` says what was given and what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What of a model decides memory and time."""

    name: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    parameters: int
    vocab_size: int
    context_length: int
    weight_bytes_per_parameter: float = 2.0
    kv_bytes_per_element: float = 2.0

    @property
    def weight_bytes(self) -> int:
        return int(self.parameters * self.weight_bytes_per_parameter)

    @property
    def kv_bytes_per_token_and_layer(self) -> int:
        """K and V, for the KV heads (not the query heads)."""
        return int(2 * self.kv_heads * self.head_dim * self.kv_bytes_per_element)

    @property
    def kv_bytes_per_token(self) -> int:
        return self.kv_bytes_per_token_and_layer * self.layers

    def without_gqa(self) -> "ModelShape":
        """The same model if every query head had its own K and V."""
        return replace(self, kv_heads=self.heads)

    def with_kv_bytes(self, per_element: float) -> "ModelShape":
        """The same model with another KV type: 1 for fp8, 4 for fp32."""
        return replace(self, kv_bytes_per_element=per_element)

    def flops(self, start: int, count: int) -> float:
        """FLOPs for tokens ``start .. start + count`` of one sequence: two for each parameter and token, and
        attention, where each token meets all before it and itself (so a prompt costs with its square)."""
        pairs = count * start + count * (count + 1) / 2
        return 2.0 * self.parameters * count + 4.0 * self.layers * self.heads * self.head_dim * pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU's data sheet: HBM, its bandwidth, dense bf16 matrix rate."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    flops_per_s: float

    @property
    def balance_flops_per_byte(self) -> float:
        """FLOPs for each byte read at which compute and memory take equally long. Decode does about one FLOP
        per weight byte and sequence (fp16), so below this batch size it waits for memory."""
        return self.flops_per_s / self.bandwidth_bytes_per_s


def _gpu(name: str, memory_gb: float, bandwidth_tb_per_s: float, tflops: float) -> Gpu:
    return Gpu(
        name=name,
        memory_bytes=int(memory_gb * 1e9),
        bandwidth_bytes_per_s=bandwidth_tb_per_s * 1e12,
        flops_per_s=tflops * 1e12,
    )


GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("h100", 80, 3.35, 989),
        _gpu("h100-pcie", 80, 2.0, 756),
        _gpu("h200", 141, 4.8, 989),
        _gpu("b200", 180, 7.7, 2250),
        _gpu("a100", 80, 2.039, 312),
        _gpu("a100-40gb", 40, 1.555, 312),
        _gpu("l40s", 48, 0.864, 362),
        _gpu("l4", 24, 0.3, 121),
        _gpu("rtx4090", 24, 1.008, 165),
        _gpu("mi300x", 192, 5.3, 1307),
    )
}

MODELS = {
    model.name: model
    for model in (
        ModelShape(
            name="70b",
            layers=80,
            heads=64,
            kv_heads=8,
            head_dim=128,
            parameters=70_000_000_000,
            vocab_size=128_256,
            context_length=131_072,
        ),
        ModelShape(
            name="8b",
            layers=32,
            heads=32,
            kv_heads=8,
            head_dim=128,
            parameters=8_030_261_248,
            vocab_size=128_256,
            context_length=131_072,
        ),
        ModelShape(
            name="smollm2-135m-instruct",
            layers=30,
            heads=9,
            kv_heads=3,
            head_dim=64,
            parameters=134_515_008,
            vocab_size=49_152,
            context_length=8_192,
        ),
    )
}


def model_named(name: str) -> ModelShape:
    """A preset; raises PlanError listing the names there are."""
    if name not in MODELS:
        raise PlanError(f"no model {name!r} is known here: {', '.join(MODELS)}")
    return MODELS[name]


def gpu_named(name: str) -> Gpu:
    """A preset, upper or lower case; raises PlanError listing the names there are."""
    if name.lower() not in GPUS:
        raise PlanError(f"no GPU {name!r} is known here: {', '.join(GPUS)}")
    return GPUS[name.lower()]


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
        flops, context = 0.0, 0
        for start, count in chunks:
            flops += self.model.flops(start, count)
            context += start + count
        if context == 0:
            return 0.0
        read_bytes = self.model.weight_bytes + context * self.model.kv_bytes_per_token
        return max(read_bytes / self.bandwidth_bytes_per_s, flops / self.flops_per_s)

    def decode_step_s(self, sequences: int, context: int) -> float:
        """Floor of a decode step of equal sequences with ``context`` tokens of KV each; with 0 the weights
        alone."""
        read_bytes = self.model.weight_bytes + sequences * context * self.model.kv_bytes_per_token
        flops = sequences * self.model.flops(context, 1)
        return max(read_bytes / self.bandwidth_bytes_per_s, flops / self.flops_per_s)

    def prefill_s(self, tokens: int) -> float:
        """Floor of computing a prompt of ``tokens`` in one pass, alone."""
        return self.step_s([(0, tokens)])


def parse_deployment(text: str) -> Deployment:
    """``MODEL@N×GPU`` (or ``NxGPU``, or ``GPU`` alone), such as ``70b@4×h100``; raises PlanError."""
    match = re.fullmatch(r"([^@]+)@(?:([0-9]{1,4})[x×])?([^@]+)", text)
    gpus = int(match[2] or 1) if match else 0
    if match is None or not 1 <= gpus <= MOST_GPUS:
        raise PlanError(f"{text!r} given, MODEL@N×GPU wanted, such as 70b@4×h100 (N from 1 to {MOST_GPUS})")
    return Deployment(model=model_named(match[1]), gpu=gpu_named(match[3]), gpus=gpus)


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB"
