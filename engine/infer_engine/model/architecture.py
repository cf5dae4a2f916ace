"""The hyper-parameters of a model, as its file states them, checked before anything is allocated by them."""

from dataclasses import dataclass

from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.gguf_file import GgufFile

SUPPORTED_ARCHITECTURES = ("llama",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A Llama-family decoder: grouped-query attention, rotary positions, SwiGLU, RMSNorm."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab_size: int
    context_length: int
    rope_base: float
    norm_epsilon: float
    #: The output matrix is the embedding.
    tied: bool

    @property
    def queries_per_kv_head(self) -> int:
        return self.heads // self.kv_heads

    def kv_bytes_per_token(self, bytes_per_element: int) -> int:
        """Bytes of K and V that one token adds over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_element


def read_architecture(gguf: GgufFile) -> Architecture:
    """Raises ModelUnsupported for anything the forward pass would compute wrongly."""
    family = gguf.get("general.architecture", str)
    if family not in SUPPORTED_ARCHITECTURES:
        raise ModelUnsupported(
            f"{gguf.path.name}: architecture {family[:64]!r} is not supported "
            f"(supported: {', '.join(SUPPORTED_ARCHITECTURES)})"
        )
    _refuse_variants(gguf)
    hidden = _bounded(gguf, "llama.embedding_length", 1 << 17)
    heads = _bounded(gguf, "llama.attention.head_count", 1 << 10)
    kv_heads = _bounded(gguf, "llama.attention.head_count_kv", heads, default=heads)
    head_dim = _bounded(gguf, "llama.attention.key_length", 1 << 10, default=max(1, hidden // heads))
    value_dim = _bounded(gguf, "llama.attention.value_length", 1 << 10, default=head_dim)
    rope_dims = _bounded(gguf, "llama.rope.dimension_count", 1 << 10, default=head_dim)
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelUnsupported(f"{gguf.path.name}: tensor token_embd.weight is missing or no matrix")
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > embedding.shape[0]:
        raise ModelUnsupported(
            f"{gguf.path.name}: the tokenizer has {len(tokens)} tokens, the model {embedding.shape[0]}"
        )
    if heads % kv_heads:
        raise ModelUnsupported(f"{gguf.path.name}: {heads} heads cannot share {kv_heads} KV heads evenly")
    if value_dim != head_dim or rope_dims != head_dim or head_dim % 2:
        raise ModelUnsupported(
            f"{gguf.path.name}: key, value and rotary dimensions must be equal and even "
            f"(given: {head_dim}, {value_dim}, {rope_dims})"
        )
    return Architecture(
        name=gguf.get("general.name", str, gguf.path.stem),
        layers=_bounded(gguf, "llama.block_count", 1 << 10),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        feed_forward=_bounded(gguf, "llama.feed_forward_length", 1 << 20),
        vocab_size=embedding.shape[0],
        context_length=_bounded(gguf, "llama.context_length", 1 << 24),
        rope_base=_positive(gguf, "llama.rope.freq_base", 10_000.0),
        norm_epsilon=_positive(gguf, "llama.attention.layer_norm_rms_epsilon", 1e-5),
        tied="output.weight" not in gguf.tensors,
    )


def _refuse_variants(gguf: GgufFile) -> None:
    if gguf.get("llama.rope.scaling.type", str, "none") != "none" or "rope_freqs.weight" in gguf.tensors:
        raise ModelUnsupported(f"{gguf.path.name}: scaled rotary positions are not supported")
    if gguf.get("llama.rope.scale_linear", float, 1.0) != 1.0:
        raise ModelUnsupported(f"{gguf.path.name}: scaled rotary positions are not supported")
    if gguf.get("llama.expert_count", int, 0):
        raise ModelUnsupported(f"{gguf.path.name}: mixture-of-experts models are not supported")
    if gguf.get("llama.attention.sliding_window", int, 0):
        raise ModelUnsupported(f"{gguf.path.name}: sliding-window attention is not supported")


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
