"""The hyper-parameters of a Hugging Face directory, from its ``config.json``."""

from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.hf_directory import HfDirectory
from infer_engine.model.hyper_parameters import (
    FAMILIES,
    MOST_CONTEXT,
    MOST_FEED_FORWARD,
    MOST_HEAD_DIM,
    MOST_HEADS,
    MOST_HIDDEN,
    MOST_LAYERS,
    MOST_VOCABULARY,
    Architecture,
    Family,
    check_heads,
)
from infer_engine.model.json_file import JsonObject
from infer_engine.model.rope import RopeScaling, linear_scaling, llama3_scaling, yarn_scaling

_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")


def read_hf_architecture(directory: HfDirectory) -> Architecture:
    """Raises ModelUnsupported for anything the forward pass would compute wrongly."""
    config = directory.config
    family = _family(config)
    _refuse_variants(config, family)
    hidden = config.bounded("hidden_size", MOST_HIDDEN)
    heads = config.bounded("num_attention_heads", MOST_HEADS)
    kv_heads = config.bounded("num_key_value_heads", heads, default=heads)
    check_heads(config.label, heads, kv_heads)
    head_dim = config.bounded(
        "head_dim", MOST_HEAD_DIM, 128 if family == "qwen3" else max(1, hidden // heads)
    )
    if head_dim % 2:
        raise ModelUnsupported(f"{config.label}: head_dim is {head_dim}, allowed are even numbers")
    context_length = config.bounded("max_position_embeddings", MOST_CONTEXT)
    rope = _rope(config)
    rope_base = rope.positive("rope_theta", config.positive("rope_theta", 10_000.0))
    bias = family != "qwen2" and config.get("attention_bias", bool, False)
    return Architecture(
        name=directory.path.name,
        family=family,
        layers=config.bounded("num_hidden_layers", MOST_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        feed_forward=config.bounded("intermediate_size", MOST_FEED_FORWARD),
        vocab_size=config.bounded("vocab_size", MOST_VOCABULARY),
        context_length=context_length,
        rope_base=rope_base,
        norm_epsilon=config.positive("rms_norm_eps", 1e-6),
        tied=config.get("tie_word_embeddings", bool, False),
        rope_scaling=_scaling(rope, head_dim, rope_base, context_length),
        qkv_bias=family == "qwen2" or bias,
        output_bias=bias,
        qk_norm=family == "qwen3",
    )


def _family(config: JsonObject) -> Family:
    given = config.get("model_type", str)
    for family in FAMILIES:
        if given == family:
            classes = config.values.get("architectures")
            if classes is not None and classes != [_CLASSES[family]]:
                raise ModelUnsupported(
                    f"{config.label}: architectures is {str(classes)[:64]}, allowed is ['{_CLASSES[family]}']"
                )
            return family
    raise ModelUnsupported(
        f"{config.label}: model_type is {given[:64]!r}, allowed are {', '.join(map(repr, FAMILIES))}"
    )


def _refuse_variants(config: JsonObject, family: Family) -> None:
    """Fields that change what is computed, each with the values under which it does not."""
    if config.values.get("quantization_config") is not None:
        raise ModelUnsupported(
            f"{config.label}: quantization_config is given; quantised directories are not supported "
            "(quantised GGUF files are)"
        )
    config.allow("hidden_act", "silu")
    config.allow("mlp_bias", False)
    config.allow("partial_rotary_factor", 1.0, 1)
    config.allow("use_sliding_window", False)
    if family == "llama" and config.values.get("sliding_window") is not None:
        raise ModelUnsupported(f"{config.label}: sliding_window is given; only full attention is supported")
    layers = config.values.get("layer_types")
    if layers is not None and (not isinstance(layers, list) or set(map(str, layers)) - {"full_attention"}):
        raise ModelUnsupported(
            f"{config.label}: layer_types holds others than 'full_attention', the one allowed"
        )


def _rope(config: JsonObject) -> JsonObject:
    """The fields of the rotary positions, under their newer or their older name."""
    rope = config.object("rope_parameters") or config.object("rope_scaling")
    return rope or JsonObject(f"{config.label}: rope_parameters", {})


def _scaling(rope: JsonObject, head_dim: int, base: float, context_length: int) -> RopeScaling | None:
    kind = rope.get("rope_type", str, rope.get("type", str, "default"))
    if kind not in _ROPE_TYPES:
        raise ModelUnsupported(
            f"{rope.label}.rope_type is {kind[:64]!r}, allowed are {', '.join(_ROPE_TYPES)}"
        )
    rope.allow("partial_rotary_factor", 1.0, 1)
    if kind == "default":
        _refuse_nested(rope)
        return None
    factor = rope.positive("factor")
    if kind == "linear":
        return linear_scaling(head_dim, factor)
    if kind == "llama3":
        return _llama3(rope, head_dim, base, factor)
    return _yarn(rope, head_dim, base, factor, context_length)


def _refuse_nested(rope: JsonObject) -> None:
    for key, value in rope.values.items():
        if isinstance(value, dict):
            raise ModelUnsupported(
                f"{rope.label}.{key[:64]}: positions that differ by layer are not supported"
            )


def _llama3(rope: JsonObject, head_dim: int, base: float, factor: float) -> RopeScaling:
    low, high = rope.positive("low_freq_factor"), rope.positive("high_freq_factor")
    if high <= low:
        raise ModelUnsupported(
            f"{rope.label}.high_freq_factor is {high}, allowed is more than low_freq_factor, {low}"
        )
    return llama3_scaling(
        head_dim,
        base,
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_context=rope.bounded("original_max_position_embeddings", MOST_CONTEXT),
    )


def _yarn(rope: JsonObject, head_dim: int, base: float, factor: float, context_length: int) -> RopeScaling:
    for key in ("mscale", "mscale_all_dim"):
        if rope.values.get(key):
            raise ModelUnsupported(
                f"{rope.label}.{key} is given, which is not supported; attention_factor is"
            )
    if base <= 1:
        raise ModelUnsupported(f"{rope.label}: rope_theta is {base}, YaRN needs more than 1")
    return yarn_scaling(
        head_dim,
        base,
        factor=factor,
        original_context=rope.bounded("original_max_position_embeddings", MOST_CONTEXT, context_length),
        beta_fast=rope.positive("beta_fast", 32.0),
        beta_slow=rope.positive("beta_slow", 1.0),
        truncate=rope.get("truncate", bool, True),
        magnitude=rope.positive("attention_factor")
        if rope.values.get("attention_factor") is not None
        else None,
    )
