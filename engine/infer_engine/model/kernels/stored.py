"""The matrices of a model as its file quantised them, by the names that ``weights.py`` gives them."""

from math import prod

import gguf
import numpy as np

from infer_engine.model.gguf_file import GgufFile
from infer_engine.model.kernels.packing import StoredRows

_PARTS = {
    "qkv": ("attn_q", "attn_k", "attn_v"),
    "output": ("attn_output",),
    "gate_up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}


class StoredMatrices:
    """Of ``source``, whose tensors ``load_weights`` has found to be whole; without one, of nothing."""

    def __init__(self, source: GgufFile | None) -> None:
        self._source = source
        self._file = None if source is None else np.memmap(source.path, mode="r")

    def rows(self, name: str) -> list[StoredRows] | None:
        """The parts of matrix ``name`` in the order in which it stacks them; None when there is no file, or
        nothing quantised in it."""
        source, file = self._source, self._file
        if source is None or file is None:
            return None
        found: list[StoredRows] = []
        for tensor in _tensors(name):
            entry = source.tensors[tensor]
            kind = gguf.GGMLQuantizationType(entry.kind)
            block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            size = prod(entry.shape) // block * block_bytes
            found.append((kind, file[entry.offset : entry.offset + size].reshape(entry.shape[0], -1)))
        return found


def _tensors(name: str) -> list[str]:
    if name == "embedding":
        return ["token_embd.weight"]
    if name == "head":
        return ["output.weight"]
    _, layer, matrix = name.split(".")
    return [f"blk.{layer}.{part}.weight" for part in _PARTS[matrix]]
