"""What ``gpu_check`` runs: how much of it, and models of random weights in real shapes."""

from dataclasses import dataclass
from typing import Any

import torch
from infer_engine.core.request import Request
from infer_engine.model.architecture import Architecture
from infer_engine.model.attention.gather_kernel import GatherKernel
from infer_engine.model.linear import COMPUTE_DTYPES, LinearKind
from infer_engine.model.llama import Llama
from infer_engine.runner import gpu
from infer_engine.runner.attention_path import AttentionPath
from infer_engine.runner.decode_graphs import Capture, call_each_time
from infer_engine.runner.memory import available_bytes
from infer_engine.runner.runner import RunnerInfo
from infer_engine.runner.torch_runner import TorchRunner
from infer_engine.runner.workspace import Meter
from infer_engine.settings import ReplicaSettings

TWIN = AttentionPath(GatherKernel(), "pages")


@dataclass(slots=True)
class Scale:
    """How much is done."""

    device: torch.device
    kinds: tuple[LinearKind, ...]
    #: heads, KV heads, head dimension
    shapes: tuple[tuple[int, int, int], ...]
    block_sizes: tuple[int, ...]
    synthetic: Architecture
    default_model: bool
    batches: tuple[int, ...]
    context: int
    prefills: tuple[int, ...]
    generated: int
    #: bytes copied, and the side of the matrices multiplied, to measure the hardware
    copied_bytes: int
    matrix: int
    repeats: int


def make_request(name: int, prompt: list[int], first_block: int, blocks: int) -> Request:
    table = list(range(first_block, first_block + blocks))
    return Request(id=str(name), prompt=prompt, max_tokens=1 << 20, arrival_s=0.0, block_table=table)


class HostGpu:
    """The CPU in a GPU's place, for the self-test."""

    capture: Capture | None = staticmethod(call_each_time)

    def __init__(self) -> None:
        self.meter: Meter = self

    def free_bytes(self) -> int:
        return available_bytes()

    def allocated_bytes(self) -> int:
        return 0

    def reset_peak(self) -> None:
        """Nothing is measured."""

    def peak_bytes(self) -> int:
        return 0


def synthetic_runner(
    architecture: Architecture, kind: LinearKind, scale: Scale, max_running: int
) -> TorchRunner:
    generator = torch.Generator(scale.device).manual_seed(1)
    dtype = COMPUTE_DTYPES[kind]
    model = Llama(architecture, _weights(architecture, dtype, scale.device, generator), kind, scale.device)
    tokens = max([max_running * (max(scale.context, 64) + 32), *scale.prefills])
    settings = ReplicaSettings(
        kv_blocks=-(-tokens // 16) + max_running,
        max_running=max_running,
        token_budget=max([max_running, *scale.prefills]),
        preempt_mode="recompute",
    )
    if scale.device.type == "cuda":
        pool, forward = gpu.make_forward(model, settings, gpu.CudaGpu(scale.device))
    else:
        pool, forward = gpu.make_forward_by(TWIN, model, settings, HostGpu())
    info = RunnerInfo(
        model=architecture.name,
        vocab_size=architecture.vocab_size,
        context_length=architecture.context_length,
        kv_blocks=pool.blocks,
        block_size=pool.block_size,
        kv_bytes_per_token=architecture.kv_bytes_per_token(dtype.itemsize),
        weight_bytes=model.weight_bytes,
        device=scale.device.type,
        dtype=kind,
    )
    return TorchRunner(info, pool, forward)


def _weights(
    a: Architecture, dtype: torch.dtype, device: torch.device, generator: torch.Generator
) -> dict[str, torch.Tensor]:
    def random(rows: int, columns: int) -> torch.Tensor:
        # Drawn in fp32, so that every dtype has the same weights, rounded.
        drawn = torch.randn((rows, columns), generator=generator, device=device)
        return (drawn * columns**-0.5).to(dtype)

    ones = torch.ones(a.hidden, dtype=dtype, device=device)
    weights = {"embedding": random(a.vocab_size, a.hidden), "norm": ones}
    if not a.tied:
        weights["head"] = random(a.vocab_size, a.hidden)
    for n in range(a.layers):
        weights |= {
            f"layers.{n}.attention_norm": ones,
            f"layers.{n}.qkv": random((a.heads + 2 * a.kv_heads) * a.head_dim, a.hidden),
            f"layers.{n}.output": random(a.hidden, a.heads * a.head_dim),
            f"layers.{n}.ffn_norm": ones,
            f"layers.{n}.gate_up": random(2 * a.feed_forward, a.hidden),
            f"layers.{n}.down": random(a.hidden, a.feed_forward),
        }
    return weights


def make_architecture(
    name: str, *, layers: int, heads: int, kv_heads: int, head_dim: int, **more: Any
) -> Architecture:
    values: dict[str, Any] = {
        "hidden": heads * head_dim,
        "feed_forward": 2 * heads * head_dim,
        "vocab_size": 300,
        "context_length": 8192,
        "rope_base": 5e5,
        "norm_epsilon": 1e-5,
        "tied": False,
        **more,
    }
    return Architecture(name=name, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim, **values)


def full_scale() -> Scale:
    kinds: tuple[LinearKind, ...] = ("fp32", "bf16", "fp16")
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        kinds = ("fp32", "fp16")
    return Scale(
        device=torch.device("cuda"),
        kinds=kinds,
        shapes=((9, 3, 64), (32, 8, 128), (14, 2, 64), (32, 32, 80), (8, 4, 256)),
        block_sizes=(16, 256),
        synthetic=make_architecture(
            "synthetic 8B",
            layers=32,
            heads=32,
            kv_heads=8,
            head_dim=128,
            feed_forward=14336,
            vocab_size=128256,
        ),
        default_model=True,
        batches=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        context=1024,
        prefills=(512, 2048, 8192),
        generated=32,
        copied_bytes=1 << 30,
        matrix=8192,
        repeats=9,
    )


def small_scale() -> Scale:
    return Scale(
        device=torch.device("cpu"),
        kinds=("fp32", "bf16"),
        shapes=((6, 2, 16),),
        block_sizes=(16,),
        synthetic=make_architecture("synthetic tiny", layers=2, heads=4, kv_heads=2, head_dim=16),
        default_model=False,
        batches=(1, 4),
        context=48,
        prefills=(64,),
        generated=6,
        copied_bytes=1 << 20,
        matrix=64,
        repeats=3,
    )
