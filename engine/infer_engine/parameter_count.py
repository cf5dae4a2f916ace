"""How many parameters a decoder has, counted from its shape."""

from typing import NamedTuple


class Counted(NamedTuple):
    """``active`` are those that one token meets: fewer than all of them where there are experts."""

    total: int
    active: int


def count_parameters(
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    feed_forward: int,
    vocab_size: int,
    tied: bool = False,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: bool = False,
    matrices: int = 3,
    experts: int = 0,
    experts_used: int = 0,
    expert_feed_forward: int = 0,
    shared_feed_forward: int = 0,
    dense_layers: int = 0,
) -> Counted:
    """The embedding (and the output matrix unless they are ``tied``), and of each layer four attention
    matrices, ``matrices`` feed-forward matrices, two norms.

    With ``experts``, all but ``dense_layers`` of the layers have so many feed-forwards of
    ``expert_feed_forward``, of which a token meets ``experts_used``, a router, and a shared one of
    ``shared_feed_forward`` that every token meets.
    """
    query, kv = heads * head_dim, kv_heads * head_dim
    attention = hidden * (2 * query + 2 * kv)
    attention += (query + 2 * kv if qkv_bias else 0) + (hidden if output_bias else 0)
    attention += 2 * head_dim if qk_norm else 0
    embedding = vocab_size * hidden * (1 if tied else 2)
    everywhere = embedding + hidden + layers * (attention + 2 * hidden)
    dense = matrices * hidden * feed_forward
    if not experts:
        total = everywhere + layers * dense
        return Counted(total, total)
    everywhere += dense_layers * dense
    expert = matrices * hidden * expert_feed_forward
    around = hidden * experts + matrices * hidden * shared_feed_forward
    sparse = layers - dense_layers
    return Counted(
        everywhere + sparse * (around + experts * expert),
        everywhere + sparse * (around + experts_used * expert),
    )
