"""Reads a model directory as Hugging Face lays it out: ``config.json``, and which tensor lies in which
``*.safetensors`` file. No torch.

Everything in it is untrusted. The safetensors library checks each header against its file (lengths, overlaps,
gaps); this module bounds what it is given, and sees to it that an index names files of the directory only.
The files themselves may be links out of it, as in the cache of the Hugging Face client.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors

from infer_engine.model.errors import ModelUnavailable, ModelUnsupported
from infer_engine.model.json_file import JsonObject, ensure_regular, read_json

CONFIG = "config.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_MOST_CONFIG_BYTES = 1 << 20
_MOST_INDEX_BYTES = 1 << 25
_MOST_HEADER_BYTES = 1 << 25
_MOST_FILES = 1024
_MOST_TENSORS = 100_000


@dataclass(frozen=True, slots=True)
class HfTensor:
    """``dtype`` is the name that safetensors gives it, such as ``BF16``; ``file`` the one it lies in."""

    shape: tuple[int, ...]
    dtype: str
    file: Path


@dataclass(frozen=True, slots=True)
class HfDirectory:
    path: Path
    config: JsonObject
    tensors: dict[str, HfTensor]

    @property
    def files(self) -> list[Path]:
        return sorted({tensor.file for tensor in self.tensors.values()})


def read_hf_directory(path: Path) -> HfDirectory:
    """Read the headers in the directory ``path``. Raises ModelUnavailable for files that are missing or
    cannot be read, ModelUnsupported for damaged ones."""
    config = read_json(path / CONFIG, _MOST_CONFIG_BYTES)
    tensors: dict[str, HfTensor] = {}
    if (path / _WEIGHTS).exists() or not (path / _INDEX).exists():
        _add_tensors(path / _WEIGHTS, tensors)
    else:
        _add_shards(path, tensors)
    return HfDirectory(path, config, tensors)


def _add_shards(path: Path, tensors: dict[str, HfTensor]) -> None:
    index = read_json(path / _INDEX, _MOST_INDEX_BYTES)
    listed = index.object("weight_map")
    if listed is None:
        raise ModelUnsupported(f"{index.label}: weight_map is missing or empty")
    names = {_shard_name(index, name) for name in listed.values.values()}
    if len(names) > _MOST_FILES:
        raise ModelUnsupported(f"{index.label} names {len(names)} files, allowed are {_MOST_FILES}")
    for name in sorted(names):
        _add_tensors(path / name, tensors)
    for tensor, name in listed.values.items():
        if tensor not in tensors or tensors[tensor].file.name != name:
            raise ModelUnsupported(
                f"{index.label}: tensor {tensor[:64]!r} is not in {name}, where it should be"
            )


def _shard_name(index: JsonObject, name: Any) -> str:
    if (
        not isinstance(name, str)
        or not name.endswith(".safetensors")
        or name.startswith(".")
        or any(character in name for character in "/\\\0")
    ):
        raise ModelUnsupported(
            f"{index.label}: weight_map names {str(name)[:64]!r}, allowed are *.safetensors files beside it"
        )
    return name


def _add_tensors(path: Path, tensors: dict[str, HfTensor]) -> None:
    """Add what ``path`` holds, by its header alone."""
    label = f"{path.parent.name}/{path.name}"
    ensure_regular(path)
    try:
        with path.open("rb") as file:
            start = file.read(8)
        if len(start) < 8 or struct.unpack("<Q", start)[0] > _MOST_HEADER_BYTES:
            raise ModelUnsupported(
                f"{label} is damaged: its header should be at most {_MOST_HEADER_BYTES:,} bytes"
            )
        with safetensors.safe_open(path, "numpy") as file:
            for name in file.keys():  # noqa: SIM118  (it is no dict)
                entry = file.get_slice(name)
                if name in tensors:
                    raise ModelUnsupported(
                        f"{label}: tensor {name[:64]!r} is in {tensors[name].file.name} too"
                    )
                tensors[name] = HfTensor(tuple(entry.get_shape()), str(entry.get_dtype()), path)
    except OSError as error:
        remedy = "" if path.exists() else "; pickled weights (*.bin, *.pth) are not read, only safetensors"
        raise ModelUnavailable(f"cannot read {label}: {error.strerror or error}{remedy}") from error
    except safetensors.SafetensorError as error:
        raise ModelUnsupported(f"{label} is damaged or incomplete: {str(error)[:200]}") from error
    if len(tensors) > _MOST_TENSORS:
        raise ModelUnsupported(f"{label}: more than {_MOST_TENSORS:,} tensors")
