"""What the prepared weights hold, and which tensors of a model's own files each of them is made of.

Matrices that are applied to the same input are stacked. In the rows of queries and keys the two halves of a
rotated pair are neighbours (``llama.py`` rotates them as complex numbers). So they are in GGUF files of
Llamas; Hugging Face, and GGUF files of Qwens, keep the first halves of a head's pairs before the second ones,
and their rows, biases and head norms are reordered.

========================  ==========================================  ========================================
name                      shape (fp32)                                from GGUF (Hugging Face: see ``_HF``)
========================  ==========================================  ========================================
embedding                 [vocab, hidden]                             token_embd
layers.N.attention_norm   [hidden]                                    blk.N.attn_norm
layers.N.qkv              [(heads + 2 kv_heads) head_dim, hidden]     blk.N.attn_q, attn_k, attn_v
layers.N.qkv_bias         [(heads + 2 kv_heads) head_dim]; optional   the biases of the same
layers.N.q_norm, k_norm   [head_dim]; optional                        blk.N.attn_q_norm, attn_k_norm
layers.N.output           [hidden, heads head_dim]                    blk.N.attn_output
layers.N.output_bias      [hidden]; optional                          its bias
layers.N.ffn_norm         [hidden]                                    blk.N.ffn_norm
layers.N.gate_up          [2 feed_forward, hidden]                    blk.N.ffn_gate, ffn_up
layers.N.down             [hidden, feed_forward]                      blk.N.ffn_down
norm                      [hidden]                                    output_norm
head                      [vocab, hidden]; absent when tied           output
========================  ==========================================  ========================================
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.hyper_parameters import Architecture

Dialect = Literal["gguf", "hf"]

#: How each dialect calls what follows ``layers.N.`` above.
_GGUF = {
    "attention_norm": "blk.{}.attn_norm",
    "q": "blk.{}.attn_q",
    "k": "blk.{}.attn_k",
    "v": "blk.{}.attn_v",
    "q_norm": "blk.{}.attn_q_norm",
    "k_norm": "blk.{}.attn_k_norm",
    "output": "blk.{}.attn_output",
    "ffn_norm": "blk.{}.ffn_norm",
    "gate": "blk.{}.ffn_gate",
    "up": "blk.{}.ffn_up",
    "down": "blk.{}.ffn_down",
}
_HF = {
    "attention_norm": "model.layers.{}.input_layernorm",
    "q": "model.layers.{}.self_attn.q_proj",
    "k": "model.layers.{}.self_attn.k_proj",
    "v": "model.layers.{}.self_attn.v_proj",
    "q_norm": "model.layers.{}.self_attn.q_norm",
    "k_norm": "model.layers.{}.self_attn.k_norm",
    "output": "model.layers.{}.self_attn.o_proj",
    "ffn_norm": "model.layers.{}.post_attention_layernorm",
    "gate": "model.layers.{}.mlp.gate_proj",
    "up": "model.layers.{}.mlp.up_proj",
    "down": "model.layers.{}.mlp.down_proj",
}
_LAYER_NAMES: dict[Dialect, dict[str, str]] = {"gguf": _GGUF, "hf": _HF}
#: The same for the tensors outside of layers: embedding, norm, head.
_OUTER_NAMES: dict[Dialect, tuple[str, str, str]] = {
    "gguf": ("token_embd.weight", "output_norm.weight", "output.weight"),
    "hf": ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"),
}
#: Problems named one by one in a message; the others are counted.
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Origin:
    """A tensor of the model's files. ``rotated_heads``: its rows are so many heads of rotated pairs whose
    halves lie apart and are to be made neighbours; 0 leaves the rows as they are."""

    name: str
    shape: tuple[int, ...]
    rotated_heads: int = 0

    def reorder(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        if not self.rotated_heads:
            return values
        halves = values.reshape(self.rotated_heads, 2, -1, *self.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of the prepared weights and the origins, stacked by rows, that it is made of."""

    name: str
    shape: tuple[int, ...]
    origins: tuple[Origin, ...]


def layout(a: Architecture, dialect: Dialect) -> list[Part]:
    """All parts, in the order in which they lie in the prepared file."""
    embedding, norm, head = _OUTER_NAMES[dialect]
    parts = [_part("embedding", Origin(embedding, (a.vocab_size, a.hidden)))]
    for number in range(a.layers):
        names = {role: name.format(number) for role, name in _LAYER_NAMES[dialect].items()}
        parts += _layer(a, f"layers.{number}", names, apart=dialect == "hf" or a.family != "llama")
    parts.append(_part("norm", Origin(norm, (a.hidden,))))
    if not a.tied:
        parts.append(_part("head", Origin(head, (a.vocab_size, a.hidden))))
    return parts


def _part(name: str, *origins: Origin) -> Part:
    rows = sum(origin.shape[0] for origin in origins)
    return Part(name, (rows, *origins[0].shape[1:]), origins)


def _layer(a: Architecture, prefix: str, names: dict[str, str], *, apart: bool) -> list[Part]:
    """``apart``: the halves of rotated pairs are."""
    queries, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim

    def part(name: str, *roles: tuple[str, int], columns: int) -> Part:
        return _part(
            f"{prefix}.{name}", *(Origin(f"{names[role]}.weight", (rows, columns)) for role, rows in roles)
        )

    def vector(name: str, length: int, rotated_heads: int = 0) -> Part:
        return _part(f"{prefix}.{name}", Origin(f"{names[name]}.weight", (length,), rotated_heads))

    def qkv(name: str, kind: str, columns: tuple[int, ...]) -> Part:
        return _part(
            f"{prefix}.{name}",
            Origin(f"{names['q']}.{kind}", (queries, *columns), a.heads * apart),
            Origin(f"{names['k']}.{kind}", (kv, *columns), a.kv_heads * apart),
            Origin(f"{names['v']}.{kind}", (kv, *columns)),
        )

    parts = [vector("attention_norm", a.hidden), qkv("qkv", "weight", (a.hidden,))]
    if a.qkv_bias:
        parts.append(qkv("qkv_bias", "bias", ()))
    if a.qk_norm:
        parts += [vector(name, a.head_dim, int(apart)) for name in ("q_norm", "k_norm")]
    parts.append(part("output", ("output", a.hidden), columns=queries))
    if a.output_bias:
        parts.append(_part(f"{prefix}.output_bias", Origin(f"{names['output']}.bias", (a.hidden,))))
    return [
        *parts,
        vector("ffn_norm", a.hidden),
        part("gate_up", ("gate", a.feed_forward), ("up", a.feed_forward), columns=a.hidden),
        part("down", ("down", a.hidden), columns=a.feed_forward),
    ]


def check_tensors(label: str, parts: list[Part], present: Mapping[str, tuple[int, ...]], family: str) -> None:
    """Every tensor that is needed must be present in its shape, and every one present be needed.
    ModelUnsupported names those that are not."""
    expected = {origin.name: origin.shape for part in parts for origin in part.origins}
    problems = [f"tensor {name} is missing" for name in expected if name not in present]
    problems += [
        f"tensor {name} is {present[name]}, expected {shape}"
        for name, shape in expected.items()
        if name in present and present[name] != shape
    ]
    problems += [
        f"tensor {name[:64]!r} is of no known use in a {family} model"
        for name in sorted(present.keys() - expected)
    ]
    if problems:
        more = f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
        raise ModelUnsupported(f"{label}: {'; '.join(problems[:_MOST_NAMED])}{more}")
