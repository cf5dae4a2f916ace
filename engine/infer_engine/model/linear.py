"""How a weight matrix is applied: one class for each path, all callable as ``[T, in] -> [T, out]``.

On the CPU the fp16 path reads half the bytes of fp32 and is up to four times as fast; its results agree with
fp32 in all but near ties. Dynamic int8 is faster still and wrong: it scales activations by the whole batch,
so that a sequence's output depends on its neighbours.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.nn import functional

Linear = Callable[[torch.Tensor], torch.Tensor]
#: fp32: as stored, from the memory map. packed_fp16: fp16 weights, fp32 activations (CPU). fp16, bf16:
#: weights and activations (CUDA; bf16 also where a CPU computes in it).
LinearKind = Literal["fp32", "packed_fp16", "fp16", "bf16"]
#: What the activations and the KV pool are, for each kind.
COMPUTE_DTYPES: dict[LinearKind, torch.dtype] = {
    "fp32": torch.float32,
    "packed_fp16": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


class DenseLinear:
    """``weight`` [out, in] in the dtype and on the device of the activations."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = weight
        self.weight_bytes = weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self._weight)


class PackedFp16Linear:
    """A copy of ``weight`` [out, in] in fp16, blocked for the kernel; activations and results are fp32."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._packed: Any = torch.ops.quantized.linear_prepack_fp16(weight, None)
        self._apply = torch.ops.quantized.linear_dynamic_fp16
        self.weight_bytes = weight.numel() * 2

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._apply(x, self._packed)

    @classmethod
    def works(cls) -> bool:
        """Whether torch has the kernel for this processor."""
        try:
            cls(torch.zeros(8, 8))(torch.zeros(1, 8))
        except RuntimeError:
            return False
        return True


def make_linear(
    weight: torch.Tensor, kind: LinearKind, device: torch.device
) -> DenseLinear | PackedFp16Linear:
    """``weight`` is [out, in], fp32 on the CPU for packing."""
    if kind == "packed_fp16":
        return PackedFp16Linear(weight)
    return DenseLinear(weight.to(device, COMPUTE_DTYPES[kind]))
