"""The napkin arithmetic of serving: how many bytes a token's KV takes, how many sequences fit, how fast a
step can be.

Pure functions of a model's shape and a GPU's data sheet. Bytes are exact; GB are 10^9 bytes. Times are
floors: what the memory bandwidth and the matrix rate allow, which no real system reaches.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

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
        return self.flops_of(count, pairs_of(start, count))

    def flops_of(self, tokens: int, pairs: float) -> float:
        """FLOPs for ``tokens`` tokens, of one sequence or several, that meet ``pairs`` tokens in all."""
        return 2.0 * self.parameters * tokens + 4.0 * self.layers * self.heads * self.head_dim * pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU's data sheet: HBM, its bandwidth, dense bf16 matrix rate."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    flops_per_s: float
    #: To and from host memory, one way: PCIe 4 or 5 with 16 lanes, or what there is instead.
    host_bytes_per_s: float

    @property
    def balance_flops_per_byte(self) -> float:
        """FLOPs for each byte read at which compute and memory take equally long. Decode does about one FLOP
        per weight byte and sequence (fp16), so below this batch size it waits for memory."""
        return self.flops_per_s / self.bandwidth_bytes_per_s


def pairs_of(start: int, count: int) -> float:
    """How many tokens the tokens ``start .. start + count`` of one sequence meet in attention: each all
    before it, and itself."""
    return count * (start + (count + 1) / 2)


def _gpu(name: str, memory_gb: float, bandwidth_tb_per_s: float, tflops: float, host_gb_per_s: float) -> Gpu:
    return Gpu(
        name=name,
        memory_bytes=int(memory_gb * 1e9),
        bandwidth_bytes_per_s=bandwidth_tb_per_s * 1e12,
        flops_per_s=tflops * 1e12,
        host_bytes_per_s=host_gb_per_s * 1e9,
    )


#: HBM in GB, TB/s, dense bf16 TFLOPS (fp32 accumulation), GB/s to the host, as the vendors' data sheets state
#: them: NVIDIA H100 (SXM and PCIe), H200, GH200 (96 GB), H20, B200 (as in HGX), A100, A10, L40S, L4, GeForce
#: RTX 4090 and 5090; AMD Instinct MI300X and MI325X.
GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("h100", 80, 3.35, 989, 63),
        _gpu("h100-pcie", 80, 2.0, 756, 63),
        _gpu("h200", 141, 4.8, 989, 63),
        _gpu("gh200", 96, 4.0, 989, 450),
        _gpu("h20", 96, 4.0, 148, 63),
        _gpu("b200", 180, 7.7, 2250, 63),
        _gpu("a100", 80, 2.039, 312, 31.5),
        _gpu("a100-40gb", 40, 1.555, 312, 31.5),
        _gpu("a10", 24, 0.6, 125, 31.5),
        _gpu("l40s", 48, 0.864, 362, 31.5),
        _gpu("l4", 24, 0.3, 121, 31.5),
        _gpu("rtx4090", 24, 1.008, 165, 31.5),
        _gpu("rtx5090", 32, 1.792, 209, 63),
        _gpu("mi300x", 192, 5.3, 1307, 63),
        _gpu("mi325x", 256, 6.0, 1307, 63),
    )
}


def _dense(
    name: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    feed_forward: int,
    vocab_size: int,
    context_length: int,
    tied: bool = False,
    attention_bias: bool = False,
    qk_norm: bool = False,
) -> ModelShape:
    """A dense Llama- or Qwen-like model with its parameters counted from its shape: the embedding (and the
    output matrix unless they are ``tied``), and of each layer four attention matrices, three feed-forward
    matrices, two norms."""
    query, kv = heads * head_dim, kv_heads * head_dim
    attention = hidden * (2 * query + 2 * kv)
    if attention_bias:  # of Q, K and V, as Qwen2 has it
        attention += query + 2 * kv
    if qk_norm:
        attention += 2 * head_dim
    layer = attention + 3 * hidden * feed_forward + 2 * hidden
    embedding = vocab_size * hidden
    return ModelShape(
        name=name,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        parameters=layers * layer + embedding * (1 if tied else 2) + hidden,
        vocab_size=vocab_size,
        context_length=context_length,
    )


def _llama(name: str, layers: int, hidden: int, heads: int, feed_forward: int, **rest: Any) -> ModelShape:
    """Llama 3: eight KV heads, a vocabulary of 128,256, a context of 131,072."""
    shape: dict[str, Any] = {"kv_heads": 8, "head_dim": 128, "vocab_size": 128_256, **rest}
    return _dense(
        name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        feed_forward=feed_forward,
        context_length=131_072,
        **shape,
    )


def _qwen25(
    name: str, layers: int, hidden: int, heads: int, kv_heads: int, feed_forward: int, **rest: Any
) -> ModelShape:
    shape: dict[str, Any] = {"head_dim": 128, "vocab_size": 152_064, **rest}
    return _dense(
        name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        feed_forward=feed_forward,
        context_length=32_768,
        attention_bias=True,
        **shape,
    )


def _qwen3(name: str, layers: int, hidden: int, heads: int, feed_forward: int, *, tied: bool) -> ModelShape:
    return _dense(
        name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        head_dim=128,
        feed_forward=feed_forward,
        vocab_size=151_936,
        context_length=40_960,
        tied=tied,
        qk_norm=True,
    )


#: Shapes as in the ``config.json`` that each is published with on Hugging Face (meta-llama, Qwen, mistralai,
#: HuggingFaceTB), served in 16 bits. ``70b`` is the round number of napkins.
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
        _llama("8b", 32, 4096, 32, 14_336),
        _llama("llama-3.2-1b", 16, 2048, 32, 8192, head_dim=64, tied=True),
        _llama("llama-3.2-3b", 28, 3072, 24, 8192, tied=True),
        _llama("llama-3.1-8b", 32, 4096, 32, 14_336),
        _llama("llama-3.1-70b", 80, 8192, 64, 28_672),
        _llama("llama-3.1-405b", 126, 16_384, 128, 53_248),
        _qwen25("qwen2.5-0.5b", 24, 896, 14, 2, 4864, head_dim=64, vocab_size=151_936, tied=True),
        _qwen25("qwen2.5-1.5b", 28, 1536, 12, 2, 8960, vocab_size=151_936, tied=True),
        _qwen25("qwen2.5-7b", 28, 3584, 28, 4, 18_944),
        _qwen25("qwen2.5-14b", 48, 5120, 40, 8, 13_824),
        _qwen25("qwen2.5-32b", 64, 5120, 40, 8, 27_648),
        _qwen25("qwen2.5-72b", 80, 8192, 64, 8, 29_568),
        _qwen3("qwen3-0.6b", 28, 1024, 16, 3072, tied=True),
        _qwen3("qwen3-4b", 36, 2560, 32, 9728, tied=True),
        _qwen3("qwen3-8b", 36, 4096, 32, 12_288, tied=False),
        _qwen3("qwen3-14b", 40, 5120, 40, 17_408, tied=False),
        _qwen3("qwen3-32b", 64, 5120, 64, 25_600, tied=False),
        _dense(
            "mistral-7b",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            head_dim=128,
            feed_forward=14_336,
            vocab_size=32_768,
            context_length=32_768,
        ),
        _dense(
            "smollm2-135m-instruct",
            layers=30,
            hidden=576,
            heads=9,
            kv_heads=3,
            head_dim=64,
            feed_forward=1536,
            vocab_size=49_152,
            context_length=8192,
            tied=True,
        ),
        _dense(
            "smollm2-1.7b",
            layers=24,
            hidden=2048,
            heads=32,
            kv_heads=32,
            head_dim=64,
            feed_forward=8192,
            vocab_size=49_152,
            context_length=8192,
            tied=True,
        ),
    )
}

#: What people call them.
ALIASES = {"llama-8b": "llama-3.1-8b", "llama-70b": "llama-3.1-70b", "llama-405b": "llama-3.1-405b"}


def model_named(name: str) -> ModelShape:
    """A preset, upper or lower case; raises PlanError listing the names there are."""
    wanted = name.lower()
    wanted = ALIASES.get(wanted, wanted)
    if wanted not in MODELS:
        raise PlanError(f"no model {name!r} is known here: {', '.join(MODELS)}")
    return MODELS[wanted]


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
            pairs += pairs_of(start, count)
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
