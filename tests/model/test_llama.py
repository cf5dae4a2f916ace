from pathlib import Path

import pytest
import torch
from infer_engine.model.architecture import read_architecture
from infer_engine.model.attention.paged import PagedAttention, Scratch, Span
from infer_engine.model.attention.pool import KvPool
from infer_engine.model.gguf_file import read_gguf
from infer_engine.model.linear import DenseLinear, LinearKind, PackedFp16Linear, make_linear
from infer_engine.model.llama import Llama
from infer_engine.model.store import no_progress, resolve
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.model.weights import load_weights
from infer_engine.settings import DEFAULT_MODEL
from support.prompts import TEXTS, harbour_log

CPU = torch.device("cpu")


def make(path: Path, kind: LinearKind) -> Llama:
    source = read_gguf(path)
    architecture = read_architecture(source)
    return Llama(architecture, load_weights(source, architecture, no_progress), kind, CPU)


@torch.inference_mode()
def all_logits(model: Llama, tokens: list[int]) -> torch.Tensor:
    """Logits after each of ``tokens``, fp32 [T, vocab]."""
    blocks = -(-len(tokens) // 16)
    pool = KvPool(model.architecture, blocks, 16, model.dtype, CPU)
    attention = PagedAttention(
        pool, [Span(0, len(tokens), list(range(blocks)))], Scratch(model.dtype, CPU), model.dtype
    )
    every = torch.arange(len(tokens))
    return model(torch.tensor(tokens), every, attention, every)


def plain_logits(path: Path, tokens: list[int]) -> torch.Tensor:
    """The same model written down as directly as possible, in float64, from the GGUF's own tensors."""
    source = read_gguf(path)
    a = read_architecture(source)
    w = {name: tensor.double() for name, tensor in load_weights(source, a, no_progress).items()}
    count = len(tokens)

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + a.norm_epsilon).sqrt() * weight

    def rotate(x: torch.Tensor) -> torch.Tensor:
        turned = x.clone()
        for position in range(count):
            for pair in range(a.head_dim // 2):
                angle = torch.tensor(position / a.rope_base ** (2 * pair / a.head_dim), dtype=torch.float64)
                first, second = x[position, :, 2 * pair], x[position, :, 2 * pair + 1]
                turned[position, :, 2 * pair] = first * angle.cos() - second * angle.sin()
                turned[position, :, 2 * pair + 1] = first * angle.sin() + second * angle.cos()
        return turned

    x = w["embedding"][tokens]
    causal = torch.full((count, count), -torch.inf, dtype=torch.float64).triu(1)
    for n in range(a.layers):
        qkv = norm(x, w[f"layers.{n}.attention_norm"]) @ w[f"layers.{n}.qkv"].T
        q, k, v = qkv.view(count, -1, a.head_dim).split([a.heads, a.kv_heads, a.kv_heads], dim=1)
        q, k = rotate(q), rotate(k)
        heads = []
        for head in range(a.heads):
            shared = head // a.queries_per_kv_head
            scores = q[:, head] @ k[:, shared].T / a.head_dim**0.5 + causal
            heads.append(scores.softmax(-1) @ v[:, shared])
        x = x + torch.cat(heads, dim=-1) @ w[f"layers.{n}.output"].T
        gate, up = (norm(x, w[f"layers.{n}.ffn_norm"]) @ w[f"layers.{n}.gate_up"].T).chunk(2, dim=-1)
        x = x + (gate * gate.sigmoid() * up) @ w[f"layers.{n}.down"].T
    return norm(x, w["norm"]) @ w.get("head", w["embedding"]).T


def test_the_forward_pass_equals_a_plain_float64_one(tiny_path: Path, cache: Path) -> None:
    tokens = [(7 * n) % 260 for n in range(40)]
    logits = all_logits(make(tiny_path, "fp32"), tokens)
    torch.testing.assert_close(logits.double(), plain_logits(tiny_path, tokens), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["packed_fp16", "fp16", "bf16"])
def test_the_sixteen_bit_paths_come_close(kind: LinearKind, tiny_path: Path, cache: Path) -> None:
    """``fp16`` and ``bf16`` are what a GPU runs; here the CPU computes the same code."""
    tokens = [(11 * n) % 260 for n in range(60)]
    expected = plain_logits(tiny_path, tokens)
    logits = all_logits(make(tiny_path, kind), tokens).double()
    error = (logits - expected).norm() / expected.norm()
    assert error < {"packed_fp16": 0.005, "fp16": 0.02, "bf16": 0.1}[kind]


@pytest.mark.parametrize("rows", [1, 2, 17])
def test_packed_weights_multiply_like_dense_ones(rows: int) -> None:
    torch.manual_seed(rows)
    weight, x = torch.randn(40, 24), torch.randn(rows, 24)
    packed, dense = make_linear(weight, "packed_fp16", CPU), make_linear(weight, "fp32", CPU)
    assert isinstance(packed, PackedFp16Linear)
    assert isinstance(dense, DenseLinear)
    torch.testing.assert_close(packed(x), dense(x), atol=0.02, rtol=0.002)
    # Exactly what rounding the weights to fp16 costs, and no more: activations keep their precision.
    torch.testing.assert_close(packed(x), x @ weight.half().float().T, atol=1e-4, rtol=1e-4)
    assert packed.weight_bytes * 2 == dense.weight_bytes


@pytest.mark.model
@pytest.mark.apart
def test_fp16_weights_choose_the_same_tokens_on_real_text() -> None:
    path = resolve(DEFAULT_MODEL)
    tokens = Tokenizer.from_file(path).encode("\n\n".join([*TEXTS, harbour_log(4)]))
    exact = all_logits(make(path, "fp32"), tokens)
    packed = all_logits(make(path, "packed_fp16"), tokens)
    same = exact.argmax(-1) == packed.argmax(-1)
    assert same.float().mean() >= 0.98
    divergence = torch.nn.functional.kl_div(
        packed.log_softmax(-1), exact.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    assert 0 <= divergence < 0.001
