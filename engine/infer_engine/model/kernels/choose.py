"""Whether this machine and this model can have the compiled kernels: tried, not assumed.

Nothing here needs numba to be imported; what does is imported when it is known to be wanted.
"""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from infer_engine.model.architecture import Architecture
from infer_engine.model.attention.paged import PagedAttention, Scratch, Span
from infer_engine.model.attention.pool import KvPool
from infer_engine.model.gguf_file import GgufFile
from infer_engine.model.llama import Llama
from infer_engine.model.store import Progress
from infer_engine.model.weights import Weights

if TYPE_CHECKING:
    from infer_engine.model.kernels.model import KernelLlama

log = logging.getLogger(__name__)

_CPU = torch.device("cpu")
#: Largest difference of two logits of the check, relative to the largest logit. fp16 weights would pass; a
#: kernel that reads the wrong weight would not.
TOLERANCE = 5e-3
#: Two parts of a decode's context; its last block holds one token, whatever its size.
_CHECKED_TOKENS = 257
#: Beginning and length of what is computed, one after another, in a fresh context each: a first token alone;
#: a prompt in two chunks, and a decode.
_CHECKED_SPANS = (((0, 1),), ((0, 100), (100, _CHECKED_TOKENS - 101), (_CHECKED_TOKENS - 1, 1)))
_CHECK_THREADS = 2


def kernel_model(
    architecture: Architecture, weights: Weights, source: GgufFile | None, block_size: int, progress: Progress
) -> "KernelLlama | None":
    """The model on compiled kernels, for ``torch.get_num_threads()`` threads; None, with the reason in the
    log, when they are not to be had here or fail their check against torch."""
    try:
        why_not = _unknown_part(architecture, weights) or _why_not(architecture, block_size)
        if why_not is None:
            progress("compiling kernels", None)
            why_not = _compiled_and_checked(architecture, weights, source, block_size, progress)
    except Exception as error:
        # Whatever a compiler does on a machine that nobody has seen: torch still computes.
        log.exception("the compiled kernels cannot be used")
        why_not = f"{type(error).__name__}: {error}"
    if why_not is not None:
        log.warning("computing with torch, several times slower than with the compiled kernels: %s", why_not)
        return None
    return _made(architecture, weights, source, torch.get_num_threads(), progress)


def _unknown_part(architecture: Architecture, weights: Weights) -> str | None:
    if architecture.rope_scaling is not None:
        return "rotary positions are scaled"
    extra = [name for name in weights if name.endswith(("_bias", ".q_norm", ".k_norm"))]
    return f"the model has {extra[0]}" if extra else None


def _why_not(architecture: Architecture, block_size: int) -> str | None:
    try:
        from infer_engine.model.kernels import simd
    except ImportError as error:
        return f"numba is not installed ({error})"
    if simd.SIMD == "none":
        return "the processor has neither AVX2 nor AVX-512"
    from infer_engine.model.kernels.compiled import use_cache

    use_cache()
    from infer_engine.model.kernels.attention import PART
    from infer_engine.model.kernels.micro_attention import TOKENS

    if architecture.head_dim % simd.WIDTH:
        return f"head dimension {architecture.head_dim} is no multiple of {simd.WIDTH}"
    if block_size % TOKENS or PART % block_size:
        return f"block size {block_size} is no multiple of {TOKENS} that divides {PART}"
    return None


def _made(
    architecture: Architecture, weights: Weights, source: GgufFile | None, threads: int, progress: Progress
) -> "KernelLlama":
    from infer_engine.model.kernels.model import KernelLlama
    from infer_engine.model.kernels.stored import StoredMatrices

    return KernelLlama(architecture, weights, StoredMatrices(source), threads, progress)


def _compiled_and_checked(
    architecture: Architecture, weights: Weights, source: GgufFile | None, block_size: int, progress: Progress
) -> str | None:
    from infer_engine.model.kernels.compiled import one_compiles

    with one_compiles(lambda: progress("waiting for another process that compiles kernels", None)):
        return _failed_check(architecture, weights, source, block_size)


def _failed_check(
    architecture: Architecture, weights: Weights, source: GgufFile | None, block_size: int
) -> str | None:
    """Compare the first layer, and the output matrix on top of it, with torch: whatever is compiled or was
    kept does here what it will do, or is not used."""
    one_layer = replace(architecture, layers=1)
    blocks = _CHECKED_TOKENS // block_size + 1
    table = list(range(blocks))[::-1]
    reference = Llama(one_layer, weights, "fp32", _CPU)
    threads = min(_CHECK_THREADS, torch.get_num_threads())
    kernels = _made(one_layer, weights, source, threads, lambda _what, _fraction: None)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, architecture.vocab_size, (_CHECKED_TOKENS,), generator=generator)
    try:
        for spans in _CHECKED_SPANS:
            pools = [KvPool(one_layer, blocks, block_size, torch.float32, _CPU) for _ in range(2)]
            for start, count in spans:
                span, positions = Span(start, count, table), torch.arange(start, start + count)
                attention = PagedAttention(pools[0], [span], Scratch(torch.float32, _CPU), torch.float32)
                expected = reference(tokens[positions], positions, attention, torch.tensor([count - 1]))
                actual = kernels(tokens[positions], positions, [span], pools[1], [count - 1])
                error = float((actual - expected).abs().max() / expected.abs().max())
                if not error < TOLERANCE:  # NaN fails too
                    return (
                        f"they failed their check: logits differ from torch's by {error:.1e} "
                        f"with {count} tokens after {start}"
                    )
    finally:
        kernels.close()
    return None
