"""Everything between a loaded model and a runner that only a GPU needs: its attention, the memory that
computing takes, the pool, the decode graphs.

Nothing here is CUDA's own: that is behind ``Gpu``, so that tests run all of it on the CPU.
"""

import logging
from typing import Protocol

import torch

from infer_engine.model.attention.pool import KvPool
from infer_engine.model.attention.problems import Shapes
from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.llama import Llama
from infer_engine.runner.attention_path import AttentionPath, choose_attention
from infer_engine.runner.decode_graphs import Capture, CudaCapture, DecodeGraphs, batch_sizes
from infer_engine.runner.forward import Forward, GatherForward, KernelForward
from infer_engine.runner.memory import GPU_MEMORY, MAIN_MEMORY, pool_blocks
from infer_engine.runner.workspace import CudaMeter, Meter, largest_step, workspace_bytes
from infer_engine.settings import ReplicaSettings

log = logging.getLogger(__name__)

#: Memory is handed out in pieces, and pieces do not always fit: this much more than was measured.
_SLACK = 1.25


class Gpu(Protocol):
    """What is asked of a GPU."""

    meter: Meter
    #: None: steps are not captured.
    capture: Capture | None

    def free_bytes(self) -> int:
        """What could still be allocated."""
        ...


class CudaGpu:
    def __init__(self, device: torch.device, *, graphs: bool = True) -> None:
        self.meter: Meter = CudaMeter(device)
        self.capture: Capture | None = CudaCapture() if graphs else None
        self._device = device

    def free_bytes(self) -> int:
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self._device)[0]


def make_forward(model: Llama, settings: ReplicaSettings, gpu: Gpu) -> tuple[KvPool, Forward]:
    """A pool that fits the device's memory, and the forward pass on it. Raises MemoryShort, and
    ModelUnsupported where no attention works."""
    shapes = Shapes(model.architecture, settings.block_size, model.dtype, model.device, "pages")
    choice = choose_attention(shapes)
    if choice is None:
        raise ModelUnsupported(
            f"no attention computes right in {model.dtype} on this device; try --dtype fp32 or --device cpu"
        )
    log.info("attention: %s (error %.2g)", choice.name, choice.error)
    return make_forward_by(choice.made, model, settings, gpu)


def make_forward_by(
    path: AttentionPath, model: Llama, settings: ReplicaSettings, gpu: Gpu
) -> tuple[KvPool, Forward]:
    """As ``make_forward``, with the attention given."""
    pool = _pool(path, model, settings, gpu)
    if path.kernel is None:
        return pool, GatherForward(model, pool)
    forward = KernelForward(model, pool, path.kernel)
    if gpu.capture is not None and path.kernel.capturable:
        try:
            forward.graphs = DecodeGraphs(
                forward.compute,
                pool,
                sizes=batch_sizes(settings.max_running),
                context_length=model.architecture.context_length,
                vocab_size=model.architecture.vocab_size,
                capture=gpu.capture,
            )
        except RuntimeError as error:
            log.warning("decode steps are not captured into CUDA graphs: %s", error)
    return pool, forward


def _pool(path: AttentionPath, model: Llama, settings: ReplicaSettings, gpu: Gpu) -> KvPool:
    architecture, size = model.architecture, settings.block_size
    kernel = path.kernel

    def make(blocks: int, host_blocks: int) -> KvPool:
        return KvPool(
            architecture,
            blocks,
            size,
            model.dtype,
            model.device,
            host_blocks,
            layout=path.layout,
            spare_blocks=0 if kernel is None else 1,
        )

    little = make(1, 0)
    forward = GatherForward(model, little) if kernel is None else KernelForward(model, little, kernel)
    step = largest_step(settings.max_running, settings.starting_token_budget(model.device.type), size)
    workspace = workspace_bytes(forward, step, gpu.meter)
    del forward, little
    # Graphs keep a workspace of their own, and their logits.
    graphs = workspace + 4 * architecture.vocab_size * batch_sizes(settings.max_running)[-1]
    reserved = int((workspace + (graphs if gpu.capture else 0)) * _SLACK)
    bytes_per_block = architecture.kv_bytes_per_token(model.dtype.itemsize) * size
    blocks = pool_blocks(
        settings.kv_blocks,
        bytes_per_block,
        gpu.free_bytes() - reserved,
        settings.sharers,
        # Gathered contexts grow with the pool, so half of the memory is theirs.
        MAIN_MEMORY if kernel is None else GPU_MEMORY,
    )
    # More than the pool itself could never be of use.
    host_blocks = 0 if settings.preempt_mode == "recompute" else min(settings.host_blocks, blocks)
    return make(blocks, host_blocks)
