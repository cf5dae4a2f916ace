"""Makes a runner from settings: finds the model, loads the weights, sizes and allocates the KV pool."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from infer_engine.core.plan import Chunk, Plan
from infer_engine.core.request import Request
from infer_engine.model.architecture import read_architecture
from infer_engine.model.attention.pool import KvPool
from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.gguf_file import GgufFile
from infer_engine.model.grammar import Grammars
from infer_engine.model.kernels.choose import kernel_model
from infer_engine.model.linear import LinearKind, PackedFp16Linear
from infer_engine.model.llama import Llama
from infer_engine.model.source import open_source
from infer_engine.model.store import Progress, resolve
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.model.weights import load_weights
from infer_engine.runner import gpu
from infer_engine.runner.forward import CompiledForward, Forward, GatherForward
from infer_engine.runner.memory import available_bytes, pool_blocks
from infer_engine.runner.runner import Runner, RunnerInfo
from infer_engine.runner.token_chooser import ConstraintDesk
from infer_engine.runner.torch_runner import TorchRunner
from infer_engine.settings import DEFAULT_MODEL, Dtype, ReplicaSettings

if TYPE_CHECKING:
    from infer_engine.model.kernels.model import KernelLlama

#: Told how much of the whole loading is done (0 to 1), and what is going on.
LoadProgress = Callable[[float, str], None]

_DTYPE_NAMES: dict[LinearKind, str] = {"fp32": "fp32", "packed_fp16": "fp16", "fp16": "fp16", "bf16": "bf16"}
#: What a processor that computes in bf16 is called in ``torch.cpu.get_capabilities``.
_CPU_BF16 = ("avx512_bf16", "amx_bf16", "bf16")
#: Where the stages of loading begin and end, as shares of the whole.
_FETCH, _PREPARE, _LOAD = (0.0, 0.3), (0.3, 0.8), (0.8, 1.0)


def load_runner(settings: ReplicaSettings, progress: LoadProgress) -> Runner:
    """Load ``settings.model`` and return a runner that has computed its first step.

    The KV pool has ``settings.kv_blocks`` blocks; unset, a share of what fits the memory that is available
    once the weights are loaded (``MAIN_MEMORY``, ``GPU_MEMORY``), divided by ``settings.sharers``. Raises
    ModelError (its subclasses ModelUnavailable, ModelUnsupported and MemoryShort), with the remedy.
    """
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    device = _device(settings)
    path = resolve(settings.model, _stage(progress, *_FETCH))
    source = open_source(path)
    architecture = read_architecture(source)
    weights = load_weights(source, architecture, _stage(progress, *_PREPARE))
    kind = _linear_kind(settings, device)
    with torch.inference_mode():
        compiled = None
        if settings.dtype == "auto" and device.type == "cpu":
            gguf = source if isinstance(source, GgufFile) else None
            compiled = kernel_model(
                architecture, weights, gguf, settings.block_size, _stage(progress, *_LOAD)
            )
        model = compiled or Llama(architecture, weights, kind, device, _stage(progress, *_LOAD))
        pool, forward = _forward(settings, model)
        info = RunnerInfo(
            model=settings.model if settings.model == DEFAULT_MODEL else path.name.removesuffix(".gguf"),
            vocab_size=architecture.vocab_size,
            context_length=architecture.context_length,
            kv_blocks=pool.blocks,
            block_size=pool.block_size,
            kv_bytes_per_token=architecture.kv_bytes_per_token(model.dtype.itemsize),
            weight_bytes=model.weight_bytes,
            device=device.type,
            host_blocks=pool.host_blocks,
            dtype=_DTYPE_NAMES[kind] if compiled is None else compiled.dtype_name,
            paths={"model": f"torch {kind}" if compiled is None else compiled.path},
            gpu_uuid=_gpu_uuid(device),
        )
    runner = TorchRunner(info, pool, forward, ConstraintDesk(lambda: Grammars(Tokenizer(source))))
    _compute_one_step(runner)
    progress(1.0, "ready")
    return runner


def _stage(progress: LoadProgress, begin: float, end: float) -> Progress:
    """Reports of one stage as shares of the whole; what has no known share stays at the stage's beginning."""

    def report(what: str, fraction: float | None) -> None:
        progress(begin + (end - begin) * (fraction or 0.0), what)

    return report


def _gpu_uuid(device: torch.device) -> str | None:
    """As NVML names it; None where torch does not tell."""
    if device.type != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}".replace("GPU-GPU-", "GPU-")


def _device(settings: ReplicaSettings) -> torch.device:
    if settings.device == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda")
    if settings.device == "cuda":
        raise ModelUnsupported("device cuda was asked for, but torch finds no CUDA GPU; use --device cpu")
    return torch.device("cpu")


def _linear_kind(settings: ReplicaSettings, device: torch.device) -> LinearKind:
    return _cuda_kind(settings.dtype) if device.type == "cuda" else _cpu_kind(settings.dtype)


def _cuda_kind(dtype: Dtype) -> LinearKind:
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    if dtype == "bf16" and not has_bf16:
        raise ModelUnsupported("this GPU does not compute in bf16; use --dtype fp16")
    if dtype == "auto":
        return "bf16" if has_bf16 else "fp16"
    return dtype


def _cpu_kind(dtype: Dtype) -> LinearKind:
    if dtype == "bf16":
        capabilities = torch.cpu.get_capabilities()
        if not any(capabilities.get(name) for name in _CPU_BF16):
            raise ModelUnsupported(
                "this processor has no bf16 arithmetic, so it would take hundreds of times longer; "
                "use --dtype auto"
            )
        return "bf16"
    packs = dtype != "fp32" and PackedFp16Linear.works()
    if dtype == "fp16" and not packs:
        raise ModelUnsupported("torch has no fp16 weights for this processor; use --dtype fp32")
    return "packed_fp16" if packs else "fp32"


def _forward(settings: ReplicaSettings, model: "Llama | KernelLlama") -> tuple[KvPool, Forward]:
    if isinstance(model, Llama) and model.device.type == "cuda":
        return gpu.make_forward(model, settings, gpu.CudaGpu(model.device))
    architecture, size = model.architecture, settings.block_size
    bytes_per_block = architecture.kv_bytes_per_token(model.dtype.itemsize) * size
    blocks = pool_blocks(settings.kv_blocks, bytes_per_block, available_bytes(), settings.sharers)
    # More than the pool itself could never be of use.
    host_blocks = 0 if settings.preempt_mode == "recompute" else min(settings.host_blocks, blocks)
    pool = KvPool(architecture, blocks, size, model.dtype, model.device, host_blocks)
    if isinstance(model, Llama):
        return pool, GatherForward(model, pool)
    return pool, CompiledForward(model, pool)


def _compute_one_step(runner: Runner) -> None:
    """Whatever the device cannot do shows now, not at the first request; so does the cost of a first call. It
    writes to block 0, which nobody owns yet."""
    request = Request(id="warm-up", prompt=[0], max_tokens=1, arrival_s=0.0, block_table=[0])
    runner.execute(Plan(step=0, chunks=[Chunk(request, start=0, count=1, samples=True)]))
