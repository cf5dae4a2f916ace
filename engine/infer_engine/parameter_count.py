"""How many parameters a decoder has, counted from its shape."""

from dataclasses import dataclass
from typing import NamedTuple


class Counted(NamedTuple):
    """``active`` are those that one token meets: fewer than all of them where there are experts."""

    total: int
    active: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """In all but ``dense_layers`` of the layers: ``count`` feed-forwards of ``feed_forward``, of which a
    token meets ``used``, a router, and one of ``shared_feed_forward`` that every token meets."""

    count: int
    used: int
    feed_forward: int
    shared_feed_forward: int = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The embedding (and the output matrix unless they are ``tied``), and of each layer four attention
    matrices, ``matrices`` feed-forward matrices, two norms."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab_size: int
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    matrices: int = 3
    experts: Experts | None = None

    def parameters(self) -> Counted:
        embedding = self.vocab_size * self.hidden * (1 if self.tied else 2)
        everywhere = embedding + self.hidden + self.layers * (self._attention() + 2 * self.hidden)
        dense = self._feed_forward(self.feed_forward)
        experts = self.experts
        if experts is None:
            total = everywhere + self.layers * dense
            return Counted(total, total)
        everywhere += experts.dense_layers * dense
        expert = self._feed_forward(experts.feed_forward)
        around = self.hidden * experts.count + self._feed_forward(experts.shared_feed_forward)
        sparse = self.layers - experts.dense_layers
        return Counted(
            everywhere + sparse * (around + experts.count * expert),
            everywhere + sparse * (around + experts.used * expert),
        )

    def _attention(self) -> int:
        query, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        matrices = self.hidden * (2 * query + 2 * kv)
        biases = (query + 2 * kv if self.qkv_bias else 0) + (self.hidden if self.output_bias else 0)
        return matrices + biases + (2 * self.head_dim if self.qk_norm else 0)

    def _feed_forward(self, size: int) -> int:
        return self.matrices * self.hidden * size
