"""Tiny decoders of every family that is supported, with weights from a seed: as a Hugging Face directory, and
the same as a GGUF file.

Written with numpy, ``safetensors`` and ``gguf`` alone, so that the script which asks transformers for the
expected logits makes the very same models.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

Array = NDArray[np.float32]

VOCABULARY = 48
HIDDEN = 32
FEED_FORWARD = 48
LAYERS = 2
CONTEXT = 128
#: Long enough that scaled positions matter: every scheme below says it was trained on 16.
PROMPT = [(11 * n + n * n) % VOCABULARY for n in range(40)]

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


@dataclass(frozen=True, kw_only=True)
class TinyFamily:
    name: str
    family: Literal["llama", "qwen2", "qwen3"] = "llama"
    heads: int = 4
    kv_heads: int = 4
    #: None: hidden / heads, and not said.
    head_dim: int | None = None
    tied: bool = False
    attention_bias: bool = False
    rope: dict[str, Any] = field(default_factory=dict)
    vocabulary: int = VOCABULARY

    @property
    def width(self) -> int:
        return self.head_dim or HIDDEN // self.heads


FAMILIES = [
    TinyFamily(name="llama"),
    TinyFamily(name="llama-grouped-tied", kv_heads=2, tied=True),
    TinyFamily(name="llama-wide-heads", kv_heads=1, head_dim=24),
    TinyFamily(name="llama-bias", kv_heads=2, attention_bias=True),
    TinyFamily(name="llama-linear", rope={"rope_type": "linear", "factor": 4.0}),
    TinyFamily(name="llama-llama3", kv_heads=2, head_dim=16, rope=LLAMA3),
    TinyFamily(name="llama-yarn", kv_heads=2, head_dim=16, rope=YARN),
    TinyFamily(name="qwen2", family="qwen2", kv_heads=2),
    TinyFamily(name="qwen2-tied-yarn", family="qwen2", kv_heads=1, tied=True, rope=YARN),
    TinyFamily(name="qwen3", family="qwen3", kv_heads=2, head_dim=16),
    TinyFamily(name="qwen3-tied", family="qwen3", head_dim=16, tied=True),
]


def config_of(model: TinyFamily) -> dict[str, Any]:
    """Its ``config.json``."""
    classes = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    config: dict[str, Any] = {
        "architectures": [classes[model.family]],
        "model_type": model.family,
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "vocab_size": model.vocabulary,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500.0,
        "tie_word_embeddings": model.tied,
        "hidden_act": "silu",
        "bos_token_id": None,
        "eos_token_id": 0,
    }
    if model.rope:
        config["rope_scaling"] = model.rope
    if model.head_dim:
        config["head_dim"] = model.head_dim
    if model.attention_bias:
        config["attention_bias"] = True
    return config


def weights_of(model: TinyFamily) -> dict[str, Array]:
    """Its tensors under Hugging Face's names, in Hugging Face's order of rows."""
    rng = np.random.default_rng(len(model.name) * 1000 + sum(map(ord, model.name)))

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Array:
        return (rng.standard_normal((rows, columns)) * gain / columns**0.5).astype(np.float32)

    def vector(length: int, around: float) -> Array:
        return (around + 0.3 * rng.standard_normal(length)).astype(np.float32)

    queries, kv = model.heads * model.width, model.kv_heads * model.width
    weights = {"model.embed_tokens.weight": matrix(model.vocabulary, HIDDEN, 3.0)}
    for number in range(LAYERS):
        layer, attention = f"model.layers.{number}", f"model.layers.{number}.self_attn"
        weights |= {
            f"{layer}.input_layernorm.weight": vector(HIDDEN, 1.0),
            # Attention that looks at some tokens much more than at others.
            f"{attention}.q_proj.weight": matrix(queries, HIDDEN, 2.0),
            f"{attention}.k_proj.weight": matrix(kv, HIDDEN, 2.0),
            f"{attention}.v_proj.weight": matrix(kv, HIDDEN),
            f"{attention}.o_proj.weight": matrix(HIDDEN, queries),
            f"{layer}.post_attention_layernorm.weight": vector(HIDDEN, 1.0),
            f"{layer}.mlp.gate_proj.weight": matrix(FEED_FORWARD, HIDDEN),
            f"{layer}.mlp.up_proj.weight": matrix(FEED_FORWARD, HIDDEN),
            f"{layer}.mlp.down_proj.weight": matrix(HIDDEN, FEED_FORWARD),
        }
        if model.family == "qwen2" or model.attention_bias:
            lengths = {"q_proj": queries, "k_proj": kv, "v_proj": kv}
            weights |= {f"{attention}.{name}.bias": vector(size, 0.0) for name, size in lengths.items()}
        if model.attention_bias:
            weights[f"{attention}.o_proj.bias"] = vector(HIDDEN, 0.0)
        if model.family == "qwen3":
            weights |= {
                f"{attention}.{name}.weight": vector(model.width, 1.5) for name in ("q_norm", "k_norm")
            }
    weights["model.norm.weight"] = vector(HIDDEN, 1.0)
    if not model.tied:
        weights["lm_head.weight"] = matrix(model.vocabulary, HIDDEN, 3.0)
    return weights


def write_hf(directory: Path, model: TinyFamily, *, shards: int = 1) -> Path:
    """Write ``config.json`` and the weights, in so many files, and return ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config_of(model)))
    weights = weights_of(model)
    if shards == 1:
        safetensors.numpy.save_file(weights, directory / "model.safetensors", {"format": "pt"})
        return directory
    weight_map: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(weights.items())[number::shards])
        safetensors.numpy.save_file(part, directory / name, {"format": "pt"})
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def write_gguf(path: Path, model: TinyFamily) -> Path:
    """The same model as its usual converter writes it."""
    writer = gguf.GGUFWriter(path, model.family)
    writer.add_name(model.name)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_rope_freq_base(500.0)
    writer.add_layer_norm_rms_eps(1e-5)
    if model.head_dim:
        writer.add_key_length(model.head_dim)
        writer.add_value_length(model.head_dim)
    _add_scaling(writer, model)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[model.family.upper()], LAYERS)
    for name, values in weights_of(model).items():
        given = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert given is not None, name
        if model.family == "llama" and ".q_proj." in name:
            values = neighbours(values, model.heads)
        if model.family == "llama" and ".k_proj." in name:
            values = neighbours(values, model.kv_heads)
        writer.add_tensor(given, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_scaling(writer: gguf.GGUFWriter, model: TinyFamily) -> None:
    kind = model.rope.get("rope_type")
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(model.width))
    elif kind:
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(model.rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(model.rope["original_max_position_embeddings"])


def neighbours(rows: Array, heads: int) -> Array:
    """Rows of a head from (first halves, second halves) to (first, second, first, second, …)."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def halves_apart(rows: Array, heads: int) -> Array:
    """The reverse."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows.shape))


def llama3_divisors(width: int) -> Array:
    """By wavelength, as the scheme was published."""
    divisors: list[float] = []
    context, factor = LLAMA3["original_max_position_embeddings"], LLAMA3["factor"]
    low, high = LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"]
    for pair in range(width // 2):
        wavelength = 2 * np.pi * 500.0 ** (2 * pair / width)
        if wavelength < context / high:
            divisors.append(1.0)
        elif wavelength > context / low:
            divisors.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)
