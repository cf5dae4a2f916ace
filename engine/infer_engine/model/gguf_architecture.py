"""The hyper-parameters of a GGUF file."""

import math
import struct

from infer_engine.model.errors import ModelUnavailable, ModelUnsupported
from infer_engine.model.gguf_file import GgufFile
from infer_engine.model.hyper_parameters import (
    FAMILIES,
    MOST_CONTEXT,
    MOST_FEED_FORWARD,
    MOST_HEAD_DIM,
    MOST_HEADS,
    MOST_HIDDEN,
    MOST_LAYERS,
    Architecture,
    Family,
    check_heads,
)
from infer_engine.model.rope import RopeScaling, linear_scaling, yarn_scaling

#: Llama 3.1's scaling, worked out by whoever made the file: what to divide each pair's frequency by.
ROPE_DIVISORS = "rope_freqs.weight"
_F32 = 0
_SCALING_TYPES = ("none", "linear", "yarn")
#: What YaRN's relatives add, and its value where it changes nothing.
_YARN_EXTRAS = {
    "attn_factor": 1.0,
    "yarn_attn_factor": 1.0,
    "yarn_ext_factor": 1.0,
    "yarn_log_multiplier": 0.0,
}


def read_gguf_architecture(gguf: GgufFile) -> Architecture:
    """Raises ModelUnsupported for anything the forward pass would compute wrongly."""
    family = _family(gguf)
    _refuse_variants(gguf, family)
    hidden = _bounded(gguf, f"{family}.embedding_length", MOST_HIDDEN)
    heads = _bounded(gguf, f"{family}.attention.head_count", MOST_HEADS)
    kv_heads = _bounded(gguf, f"{family}.attention.head_count_kv", heads, default=heads)
    check_heads(gguf.path.name, heads, kv_heads)
    head_dim = _head_dim(gguf, family, hidden, heads)
    rope_base = _positive(gguf, f"{family}.rope.freq_base", 10_000.0)
    return Architecture(
        name=gguf.get("general.name", str, gguf.path.stem),
        family=family,
        layers=_bounded(gguf, f"{family}.block_count", MOST_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        feed_forward=_bounded(gguf, f"{family}.feed_forward_length", MOST_FEED_FORWARD),
        vocab_size=_vocab_size(gguf),
        context_length=_bounded(gguf, f"{family}.context_length", MOST_CONTEXT),
        rope_base=rope_base,
        norm_epsilon=_positive(gguf, f"{family}.attention.layer_norm_rms_epsilon", 1e-5),
        tied="output.weight" not in gguf.tensors,
        rope_scaling=_scaling(gguf, family, head_dim, rope_base),
        qkv_bias=family == "qwen2" or "blk.0.attn_q.bias" in gguf.tensors,
        output_bias="blk.0.attn_output.bias" in gguf.tensors,
        qk_norm=family == "qwen3",
    )


def _family(gguf: GgufFile) -> Family:
    given = gguf.get("general.architecture", str)
    for family in FAMILIES:
        if given == family:
            return family
    raise ModelUnsupported(
        f"{gguf.path.name}: architecture {given[:64]!r} is not supported (supported: {', '.join(FAMILIES)})"
    )


def _refuse_variants(gguf: GgufFile, family: Family) -> None:
    name = gguf.path.name
    if gguf.get("split.count", int, 1) > 1:
        raise ModelUnsupported(f"{name} is one of several parts; join them (llama-gguf-split --merge) first")
    if gguf.get(f"{family}.expert_count", int, 0):
        raise ModelUnsupported(f"{name}: mixture-of-experts models are not supported")
    if gguf.get(f"{family}.attention.sliding_window", int, 0):
        raise ModelUnsupported(f"{name}: sliding-window attention is not supported")


def _head_dim(gguf: GgufFile, family: Family, hidden: int, heads: int) -> int:
    head_dim = _bounded(gguf, f"{family}.attention.key_length", MOST_HEAD_DIM, max(1, hidden // heads))
    value_dim = _bounded(gguf, f"{family}.attention.value_length", MOST_HEAD_DIM, head_dim)
    rope_dims = _bounded(gguf, f"{family}.rope.dimension_count", MOST_HEAD_DIM, head_dim)
    if value_dim != head_dim or rope_dims != head_dim or head_dim % 2:
        raise ModelUnsupported(
            f"{gguf.path.name}: key, value and rotary dimensions must be equal and even "
            f"(given: {head_dim}, {value_dim}, {rope_dims})"
        )
    return head_dim


def _vocab_size(gguf: GgufFile) -> int:
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelUnsupported(f"{gguf.path.name}: tensor token_embd.weight is missing or no matrix")
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > embedding.shape[0]:
        raise ModelUnsupported(
            f"{gguf.path.name}: the tokenizer has {len(tokens)} tokens, the model {embedding.shape[0]}"
        )
    return embedding.shape[0]


def _scaling(gguf: GgufFile, family: Family, head_dim: int, base: float) -> RopeScaling | None:
    kind = gguf.get(f"{family}.rope.scaling.type", str, "none")
    if kind not in _SCALING_TYPES:
        raise ModelUnsupported(
            f"{gguf.path.name}: {family}.rope.scaling.type is {kind[:64]!r}, "
            f"allowed are {', '.join(_SCALING_TYPES)}"
        )
    # An older name of the factor, without a type.
    factor = _positive(gguf, f"{family}.rope.scale_linear", 1.0)
    if kind != "none":
        factor = _positive(gguf, f"{family}.rope.scaling.factor", factor)
    if ROPE_DIVISORS in gguf.tensors:
        if factor != 1.0:
            raise ModelUnsupported(f"{gguf.path.name}: positions are scaled twice, by metadata and by tensor")
        return RopeScaling(divisors=_divisors(gguf, head_dim // 2))
    if kind == "yarn":
        return _yarn(gguf, family, head_dim, base, factor)
    return None if factor == 1.0 else linear_scaling(head_dim, factor)


def _yarn(gguf: GgufFile, family: Family, head_dim: int, base: float, factor: float) -> RopeScaling:
    prefix = f"{family}.rope.scaling."
    for key, harmless in _YARN_EXTRAS.items():
        if (value := gguf.get(prefix + key, float, harmless)) != harmless:
            raise ModelUnsupported(
                f"{gguf.path.name}: {prefix}{key} is {value}, only {harmless} is supported"
            )
    return yarn_scaling(
        head_dim,
        _above_one(gguf, f"{family}.rope.freq_base", base),
        factor=factor,
        original_context=_bounded(gguf, f"{prefix}original_context_length", MOST_CONTEXT),
        beta_fast=_positive(gguf, f"{prefix}yarn_beta_fast", 32.0),
        beta_slow=_positive(gguf, f"{prefix}yarn_beta_slow", 1.0),
    )


def _divisors(gguf: GgufFile, pairs: int) -> tuple[float, ...]:
    """The values of ``rope_freqs.weight``."""
    entry = gguf.tensors[ROPE_DIVISORS]
    if entry.kind != _F32 or entry.shape != (pairs,):
        raise ModelUnsupported(
            f"{gguf.path.name}: tensor {ROPE_DIVISORS} is {entry.shape} of type {entry.kind}, "
            f"expected ({pairs},) of type F32"
        )
    try:
        with gguf.path.open("rb") as file:
            file.seek(entry.offset)
            values = struct.unpack(f"<{pairs}f", file.read(4 * pairs))
    except OSError as error:
        raise ModelUnavailable(f"cannot read model file {gguf.path}: {error.strerror}") from error
    except struct.error as error:
        raise ModelUnsupported(
            f"{gguf.path.name} is incomplete: it ends within tensor {ROPE_DIVISORS}"
        ) from error
    if not all(0 < value < math.inf for value in values):
        raise ModelUnsupported(f"{gguf.path.name}: tensor {ROPE_DIVISORS} must hold positive numbers")
    return values


def _above_one(gguf: GgufFile, key: str, value: float) -> float:
    if value <= 1:
        raise ModelUnsupported(f"{gguf.path.name}: {key} is {value}, YaRN needs more than 1")
    return value


def _bounded(gguf: GgufFile, key: str, most: int, default: int | None = None) -> int:
    value = gguf.get(key, int, default)
    if not 1 <= value <= most:
        raise ModelUnsupported(f"{gguf.path.name}: {key} is {value}, allowed is 1 to {most}")
    return value


def _positive(gguf: GgufFile, key: str, default: float) -> float:
    value = gguf.get(key, float, default)
    if not 0 < value < 1e12:  # NaN fails too
        raise ModelUnsupported(f"{gguf.path.name}: {key} is {value}, allowed is a positive number")
    return value
