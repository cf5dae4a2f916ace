"""The GPU's way of running a model, on the CPU: kernels that gather, graphs that call, a meter that is
told."""

from pathlib import Path

import torch
from infer_engine.model.architecture import read_architecture
from infer_engine.model.attention.gather_kernel import GatherKernel
from infer_engine.model.gguf_file import read_gguf
from infer_engine.model.linear import LinearKind
from infer_engine.model.llama import Llama
from infer_engine.model.store import no_progress
from infer_engine.model.weights import load_weights
from infer_engine.runner.attention_path import AttentionPath
from infer_engine.runner.decode_graphs import Capture, DecodeGraphs, call_each_time
from infer_engine.runner.forward import KernelForward
from infer_engine.runner.gpu import make_forward_by
from infer_engine.runner.runner import RunnerInfo
from infer_engine.runner.torch_runner import TorchRunner
from infer_engine.settings import ReplicaSettings

TWIN_PATH = AttentionPath(GatherKernel(), "pages")


class ToldMeter:
    """A device whose memory grows by ``workspace`` bytes while something is computed."""

    def __init__(self, workspace: int) -> None:
        self.workspace = workspace
        self.resets = 0

    def allocated_bytes(self) -> int:
        return 1000

    def reset_peak(self) -> None:
        self.resets += 1

    def peak_bytes(self) -> int:
        return 1000 + self.workspace


class TwinGpu:
    """See ``infer_engine.runner.gpu.Gpu``."""

    def __init__(
        self, *, free: int = 1 << 30, workspace: int = 0, capture: Capture | None = call_each_time
    ) -> None:
        self.meter = ToldMeter(workspace)
        self.capture = capture
        self.free = free

    def free_bytes(self) -> int:
        return self.free


def load_model(path: Path, kind: LinearKind = "fp32") -> Llama:
    gguf = read_gguf(path)
    architecture = read_architecture(gguf)
    with torch.inference_mode():
        return Llama(architecture, load_weights(gguf, architecture, no_progress), kind, torch.device("cpu"))


class TwinRunner(TorchRunner):
    """A runner as it is on a GPU; ``graphs`` counts what was replayed."""

    def __init__(self, model: Llama, settings: ReplicaSettings) -> None:
        with torch.inference_mode():
            pool, forward = make_forward_by(TWIN_PATH, model, settings, TwinGpu())
        assert isinstance(forward, KernelForward)
        assert forward.graphs is not None
        self.graphs: DecodeGraphs = forward.graphs
        self.pool = pool
        info = RunnerInfo(
            model="twin",
            vocab_size=model.architecture.vocab_size,
            context_length=model.architecture.context_length,
            kv_blocks=pool.blocks,
            block_size=pool.block_size,
            kv_bytes_per_token=model.architecture.kv_bytes_per_token(4),
            weight_bytes=model.weight_bytes,
            device="cpu",
            dtype="fp32",
            host_blocks=pool.host_blocks,
        )
        super().__init__(info, pool, forward)
