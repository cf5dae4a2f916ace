"""The tensors of a Hugging Face directory as fp32 numbers, one at a time, from the memory map."""

from collections.abc import Iterator

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray

from infer_engine.model.errors import ModelUnavailable, ModelUnsupported
from infer_engine.model.hf_directory import CONFIG, HfDirectory
from infer_engine.model.layout import Dialect

_DTYPES = ("F32", "F16", "BF16")
#: Tables that older exports kept with the weights; they follow from the configuration.
_DERIVED = ".rotary_emb.inv_freq"
_HEAD = "lm_head.weight"


class HfTensors:
    dialect: Dialect = "hf"

    def __init__(self, source: HfDirectory, *, tied: bool) -> None:
        self.label = source.path.name
        self.stem = source.path.name
        self._source = source
        #: A copy of the embedding, which a tied model does not use.
        self._unused = {_HEAD} if tied else set[str]()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors that are weights."""
        return {
            name: tensor.shape
            for name, tensor in self._source.tensors.items()
            if name not in self._unused and not name.endswith(_DERIVED)
        }

    def check(self, name: str) -> None:
        """ModelUnsupported unless ``name`` is of a type that can be read."""
        tensor = self._source.tensors[name]
        if tensor.dtype not in _DTYPES:
            raise ModelUnsupported(
                f"{self.label}/{tensor.file.name}: tensor {name} is of type {tensor.dtype}, "
                f"allowed are {', '.join(_DTYPES)}"
            )

    def read(self, name: str) -> NDArray[np.float32]:
        file = self._source.tensors[name].file
        try:
            with safetensors.safe_open(file, "pt") as opened:
                values: torch.Tensor = opened.get_tensor(name)
        except OSError as error:
            raise ModelUnavailable(f"cannot read {self.label}/{file.name}: {error}") from error
        except safetensors.SafetensorError as error:
            raise ModelUnsupported(f"{self.label}/{file.name} is damaged: {str(error)[:200]}") from error
        return values.float().contiguous().numpy()

    def fingerprint(self) -> Iterator[bytes]:
        """Tells this directory from others: its configuration, and name, size and time of modification of
        each file of weights."""
        yield (self._source.path / CONFIG).read_bytes()
        for file in self._source.files:
            status = file.stat()
            yield f"{file.name} {status.st_size} {status.st_mtime_ns} ".encode()
