"""The shape of a decoder in numbers, and the bounds within which this engine computes it rightly."""

from dataclasses import dataclass
from typing import Literal

from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.rope import RopeScaling

Family = Literal["llama", "qwen2", "qwen3"]
FAMILIES: tuple[Family, ...] = ("llama", "qwen2", "qwen3")

MOST_LAYERS = 1 << 10
MOST_HIDDEN = 1 << 17
MOST_HEADS = 1 << 10
MOST_HEAD_DIM = 1 << 10
MOST_FEED_FORWARD = 1 << 20
MOST_CONTEXT = 1 << 24
MOST_VOCABULARY = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder of the Llama kind: grouped-query attention, rotary positions, SwiGLU, RMSNorm; and what its
    relatives add."""

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
    family: Family = "llama"
    #: None: positions are not scaled.
    rope_scaling: RopeScaling | None = None
    #: Queries, keys and values have a bias (all Qwen2; Llama and Qwen3 where the file says so).
    qkv_bias: bool = False
    #: The attention's output has one.
    output_bias: bool = False
    #: Queries and keys are normed head by head before they are rotated (Qwen3).
    qk_norm: bool = False

    @property
    def queries_per_kv_head(self) -> int:
        return self.heads // self.kv_heads

    @property
    def is_plain(self) -> bool:
        """A Llama with nothing added: no biases, no norms of heads, positions as they are."""
        return self.rope_scaling is None and not (self.qkv_bias or self.output_bias or self.qk_norm)

    def kv_bytes_per_token(self, bytes_per_element: int) -> int:
        """Bytes of K and V that one token adds over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_element


def check_heads(file: str, heads: int, kv_heads: int) -> None:
    """ModelUnsupported, naming ``file``, unless query heads can share KV heads evenly."""
    if heads % kv_heads:
        raise ModelUnsupported(f"{file}: {heads} heads cannot share {kv_heads} KV heads evenly")
