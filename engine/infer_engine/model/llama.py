"""The forward pass of a Llama or Qwen over a packed batch: the tokens of all chunks of a step, one after
another.

Sequences meet only in the matrix multiplications; which tokens see which is the attention's business.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from infer_engine.model.hyper_parameters import Architecture
from infer_engine.model.linear import COMPUTE_DTYPES, Linear, LinearKind, make_linear
from infer_engine.model.store import Progress, no_progress
from infer_engine.model.weights import Weights

#: ``(layer, queries [T, heads, head_dim], kv [T, 2 kv_heads, head_dim]) -> [T, heads * head_dim]``, both
#: rotated; it stores ``kv`` before it attends.
Attention = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(slots=True, frozen=True)
class _Layer:
    attention_norm: torch.Tensor
    qkv: Linear
    output: Linear
    ffn_norm: torch.Tensor
    gate_up: Linear
    down: Linear
    qkv_bias: torch.Tensor | None
    #: [heads + kv_heads, head_dim]: what normed queries and keys are multiplied by.
    qk_norm: torch.Tensor | None
    output_bias: torch.Tensor | None


class Llama:
    """``weights`` as ``load_weights`` returns them; what it computes in is COMPUTE_DTYPES of its kind."""

    def __init__(
        self,
        architecture: Architecture,
        weights: Weights,
        kind: LinearKind,
        device: torch.device,
        progress: Progress = no_progress,
    ) -> None:
        self.architecture = architecture
        self.device = device
        self.weight_bytes = 0

        def linear(weight: torch.Tensor) -> Linear:
            made = make_linear(weight, kind, device)
            self.weight_bytes += made.weight_bytes
            return made

        self.dtype = COMPUTE_DTYPES[kind]

        def vector(name: str) -> torch.Tensor:
            return weights[name].to(device, self.dtype)

        def optional(name: str) -> torch.Tensor | None:
            return vector(name) if name in weights else None

        def qk_norm(prefix: str) -> torch.Tensor | None:
            if not architecture.qk_norm:
                return None
            queries = vector(f"{prefix}.q_norm").expand(architecture.heads, -1)
            keys = vector(f"{prefix}.k_norm").expand(architecture.kv_heads, -1)
            return torch.cat((queries, keys))

        # On the CPU the embedding stays in the memory map: a step reads a few rows of it.
        self._embedding = weights["embedding"].to(device, self.dtype)
        self._layers: list[_Layer] = []
        for n in range(architecture.layers):
            progress("loading the weights", n / architecture.layers)
            self._layers.append(
                _Layer(
                    attention_norm=vector(f"layers.{n}.attention_norm"),
                    qkv=linear(weights[f"layers.{n}.qkv"]),
                    output=linear(weights[f"layers.{n}.output"]),
                    ffn_norm=vector(f"layers.{n}.ffn_norm"),
                    gate_up=linear(weights[f"layers.{n}.gate_up"]),
                    down=linear(weights[f"layers.{n}.down"]),
                    qkv_bias=optional(f"layers.{n}.qkv_bias"),
                    qk_norm=qk_norm(f"layers.{n}"),
                    output_bias=optional(f"layers.{n}.output_bias"),
                )
            )
        self._norm = vector("norm")
        self._head = linear(self._embedding if architecture.tied else weights["head"])
        self._frequencies = rope_frequencies(architecture).to(device)
        scaling = architecture.rope_scaling
        self._magnitude = scaling.magnitude if scaling else 1.0

    def __call__(
        self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attention, logit_rows: torch.Tensor
    ) -> torch.Tensor:
        """``tokens`` and ``positions`` are integers [T]; returns fp32 logits [len(logit_rows), vocab] of the
        packed rows ``logit_rows`` alone, since a chunk that does not reach its newest token samples
        nothing."""
        a = self.architecture
        x = functional.embedding(tokens, self._embedding)
        rotations = self._rotations(positions)
        for number, layer in enumerate(self._layers):
            qkv = layer.qkv(self._normed(x, layer.attention_norm))
            if layer.qkv_bias is not None:
                qkv += layer.qkv_bias
            qkv = qkv.view(len(tokens), -1, a.head_dim)
            # Queries and keys are neighbours: one norm and one rotation for both.
            turned = qkv[:, : a.heads + a.kv_heads]
            if layer.qk_norm is not None:
                turned.copy_(functional.rms_norm(turned, (a.head_dim,), eps=a.norm_epsilon) * layer.qk_norm)
            _rotate(turned, rotations)
            x = x + layer.output(attend(number, qkv[:, : a.heads], qkv[:, a.heads :]))
            if layer.output_bias is not None:
                x += layer.output_bias
            gate, up = layer.gate_up(self._normed(x, layer.ffn_norm)).chunk(2, dim=-1)
            x = x + layer.down(functional.silu(gate) * up)
        if not len(logit_rows):
            return x.new_empty(0, a.vocab_size, dtype=torch.float32)
        return self._head(self._normed(x[logit_rows], self._norm)).float()

    def _rotations(self, positions: torch.Tensor) -> torch.Tensor:
        """Complex numbers [T, 1, head_dim / 2]: position times frequency as an angle; of length 1 but for
        YaRN."""
        angles = torch.outer(positions.float(), self._frequencies)
        return torch.polar(torch.full_like(angles, self._magnitude), angles).unsqueeze(1)

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, weight.shape, weight, self.architecture.norm_epsilon)


def rope_frequencies(architecture: Architecture) -> torch.Tensor:
    """Radians per position of each rotated pair, fp32 [head_dim / 2], scaled as the model asks."""
    pairs = torch.arange(0, architecture.head_dim, 2, dtype=torch.float32) / architecture.head_dim
    frequencies = 1.0 / architecture.rope_base**pairs
    scaling = architecture.rope_scaling
    return frequencies if scaling is None else frequencies / torch.tensor(scaling.divisors)


def _rotate(heads: torch.Tensor, rotations: torch.Tensor) -> None:
    """Rotate ``heads`` [T, H, head_dim] in place by ``rotations`` [T, 1, head_dim / 2]. The two halves of
    a pair lie side by side, so that they are the parts of a complex number."""
    if heads.dtype is torch.float32:
        torch.view_as_complex(heads.unflatten(-1, (-1, 2))).mul_(rotations)
    else:
        turned = torch.view_as_complex(heads.float().unflatten(-1, (-1, 2))) * rotations
        heads.copy_(torch.view_as_real(turned).flatten(-2))
