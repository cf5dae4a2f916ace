"""A model's shape from the ``config.json`` that Hugging Face models are published with.

Any decoder with attention in all its layers. What the file lacks is refused by name; what it has and the
arithmetic leaves out is said in the notes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from infer_engine.parameter_count import Decoder, Experts
from infer_engine.shapes import ModelShape, PlanError

#: Largest whole number that is believed.
MOST = 10_000_000
#: Whose parameters are counted exactly.
COUNTED_TYPES = frozenset(
    {"llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3"}
)
#: With norms on queries and keys; with biases on queries, keys and values whatever ``attention_bias`` says.
_NORMED, _BIASED = {"qwen3", "qwen3_moe"}, {"qwen2", "qwen2_moe"}
_UNGATED = {"gpt2", "gpt_bigcode", "gpt_neox", "opt", "falcon", "bloom", "phi", "starcoder2", "mpt"}
_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "float8_e4m3fn": 1.0}
#: Bits of quantisations that do not say theirs.
_BITS = {"fp8": 8, "mxfp4": 4, "fbgemm_fp8": 8}


class ConfigShape(NamedTuple):
    """``notes`` say what of the file was estimated or is not counted."""

    shape: ModelShape
    notes: tuple[str, ...]


class _Fields:
    """The file's fields, under any of the names they go by."""

    def __init__(self, label: str, values: Mapping[str, Any]) -> None:
        self.label, self.values = label, values

    def whole(self, *names: str, default: int | None = None) -> int:
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
                raise PlanError(
                    f"{self.label}: {name}: {str(value)[:40]!r} was given, "
                    f"allowed is a whole number from 1 to {MOST}"
                )
            return value
        if default is None:
            others = f" (nor {', '.join(names[1:])})" if names[1:] else ""
            raise PlanError(f"{self.label}: {names[0]} is missing{others}")
        return default

    def optional(self, *names: str) -> int:
        """0 where there is none, or it is 0."""
        if any(self.values.get(name) == 0 for name in names):
            return 0
        return self.whole(*names, default=0) if any(name in self.values for name in names) else 0

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.values.get(name)
        return value if isinstance(value, bool) else default


def shape_of_config(config: object, label: str, name: str) -> ConfigShape:
    """``config`` is the file's JSON, ``label`` the file in errors, ``name`` what the model is to be called.
    Raise PlanError for what is missing or is no decoder this arithmetic holds for."""
    if not isinstance(config, Mapping):
        raise PlanError(f"{label}: a JSON object is wanted, as in a model's config.json")
    values = cast("Mapping[str, Any]", config)
    notes: list[str] = []
    inner = values.get("text_config")
    if isinstance(inner, Mapping):
        notes.append("text_config alone is counted: not what sees or hears")
        outer = {key: values[key] for key in ("quantization_config", "dtype", "torch_dtype") if key in values}
        values = {**outer, **cast("Mapping[str, Any]", inner)}
    fields = _Fields(label, values)
    _refuse(fields)
    shape = _shape(fields, name, notes)
    _note_windows(fields, notes)
    return ConfigShape(shape, tuple(notes))


def _refuse(fields: _Fields) -> None:
    values = fields.values
    if values.get("is_encoder_decoder"):
        raise PlanError(f"{fields.label}: is_encoder_decoder: only decoders are counted")
    if values.get("kv_lora_rank") is not None:
        raise PlanError(
            f"{fields.label}: kv_lora_rank: latent attention (MLA), which keeps no K and V per head, "
            "is not counted"
        )
    kinds: object = values.get("layer_types")
    if isinstance(kinds, list):
        for kind in cast("list[object]", kinds):
            if kind not in ("full_attention", "sliding_attention", "chunked_attention"):
                raise PlanError(
                    f"{fields.label}: layer_types has {str(kind)[:40]!r}; layers without K and V per token "
                    "are not counted"
                )


def _shape(fields: _Fields, name: str, notes: list[str]) -> ModelShape:
    values = fields.values
    kind = str(values.get("model_type") or "")
    hidden = fields.whole("hidden_size", "n_embd", "d_model")
    layers = fields.whole("num_hidden_layers", "n_layer", "n_layers")
    heads = fields.whole("num_attention_heads", "n_head", "n_heads")
    kv_heads = _kv_heads(fields, heads)
    if heads % kv_heads:
        raise PlanError(
            f"{fields.label}: num_key_value_heads: {kv_heads} was given, allowed is what divides "
            f"num_attention_heads, {heads}"
        )
    head_dim = fields.whole("head_dim", default=max(1, hidden // heads))
    ungated = kind in _UNGATED
    experts = fields.optional("num_local_experts", "num_experts", "n_routed_experts")
    if ungated:
        feed_forward = fields.whole("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)
    else:  # of experts alone the dense size may be left out
        feed_forward = fields.whole("intermediate_size", default=1 if experts else None)
    biased = fields.flag("attention_bias")
    decoder = Decoder(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        feed_forward=feed_forward,
        vocab_size=fields.whole("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=kind.startswith(("gemma", "gpt2"))),
        qkv_bias=biased or kind in _BIASED,
        output_bias=biased,
        qk_norm=kind in _NORMED,
        matrices=2 if ungated else 3,
        experts=_experts(fields, layers, experts, notes) if experts else None,
    )
    counted = decoder.parameters()
    if kind not in COUNTED_TYPES:
        called = f"model_type {kind[:40]!r}" if kind else "a model without model_type"
        notes.append(f"{called}: its parameters are estimated from its shape, as of a Llama-like model")
    weight_bytes, kv_bytes = _precision(fields, notes)
    return ModelShape(
        name=name,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        parameters=counted.total,
        vocab_size=decoder.vocab_size,
        context_length=fields.whole("max_position_embeddings", "n_positions", "max_seq_len", default=MOST),
        weight_bytes_per_parameter=weight_bytes,
        kv_bytes_per_element=kv_bytes,
        active_parameters=counted.active if experts else None,
    )


def _kv_heads(fields: _Fields, heads: int) -> int:
    if fields.flag("multi_query") and not fields.flag("new_decoder_architecture"):
        return 1
    return fields.whole("num_key_value_heads", "num_kv_heads", default=heads)


def _experts(fields: _Fields, layers: int, experts: int, notes: list[str]) -> Experts:
    used = fields.whole("num_experts_per_tok", "experts_per_token", "num_experts_per_token")
    size = fields.whole("moe_intermediate_size", "intermediate_size")
    shared = fields.optional("shared_expert_intermediate_size") or size * fields.optional("n_shared_experts")
    only_dense: object = fields.values.get("mlp_only_layers")
    dense = fields.optional("first_k_dense_replace")
    if isinstance(only_dense, list):
        dense += len(cast("list[object]", only_dense))
    every = fields.whole("decoder_sparse_step", default=1)
    if every > 1:
        dense += layers - layers // every
    notes.append(
        f"{experts} experts, {used} for each token: a step is taken to read all of them, "
        "which a small batch need not"
    )
    return Experts(
        count=experts,
        used=min(used, experts),
        feed_forward=size,
        shared_feed_forward=shared,
        dense_layers=min(dense, layers),
    )


def _precision(fields: _Fields, notes: list[str]) -> tuple[float, float]:
    """Bytes of a parameter and of an element of K or V, as published."""
    given = str(fields.values.get("dtype") or fields.values.get("torch_dtype") or "").removeprefix("torch.")
    element = _BYTES.get(given, 2.0)
    quantised: object = fields.values.get("quantization_config")
    if not isinstance(quantised, Mapping):
        return element, max(element, 2.0)
    quantisation = cast("Mapping[str, Any]", quantised)
    method = str(quantisation.get("quant_method") or "")[:40]
    bits = quantisation.get("bits", _BITS.get(method))
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 32:
        notes.append(f"quantised ({method or 'by an unnamed method'}) to bits it does not tell: 16 are taken")
        return element, 2.0
    notes.append(f"quantised ({method}) to {bits} bits: scales and what is left unquantised are not counted")
    return bits / 8, max(element, 2.0)


def _note_windows(fields: _Fields, notes: list[str]) -> None:
    window = fields.values.get("sliding_window") or fields.values.get("attention_chunk_size")
    if isinstance(window, int) and fields.values.get("use_sliding_window") is not False:
        notes.append(
            f"attention in windows of {window} tokens is counted as full: its KV is at most what is shown"
        )
