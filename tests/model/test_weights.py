from pathlib import Path
from threading import Thread

import gguf
import numpy as np
import pytest
import torch
from infer_engine.model.architecture import read_architecture
from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.gguf_file import read_gguf
from infer_engine.model.weights import Weights, load_weights
from support.tiny_model import TensorType, write_tiny_gguf


class Reports:
    """What a load said it was doing."""

    def __init__(self) -> None:
        self.fractions: dict[str, list[float | None]] = {}

    def __call__(self, what: str, fraction: float | None) -> None:
        self.fractions.setdefault(what, []).append(fraction)

    @property
    def prepared(self) -> bool:
        return "preparing the weights" in self.fractions


def load(path: Path) -> tuple[Weights, Reports]:
    source, reports = read_gguf(path), Reports()
    return load_weights(source, read_architecture(source), reports), reports


def prepared_file(cache: Path) -> Path:
    (path,) = (cache / "weights").glob("*.safetensors")
    return path


@pytest.mark.parametrize("tensor_type", ["F32", "F16", "Q8_0", "Q4_1"])
def test_weights_are_the_dequantised_tensors(tensor_type: TensorType, cache: Path, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", tensor_type=tensor_type, tied=False)
    weights, _ = load(path)
    theirs = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf.GGUFReader(path).tensors
    }
    qkv = np.concatenate([theirs[f"blk.1.attn_{part}.weight"] for part in "qkv"])
    np.testing.assert_array_equal(weights["layers.1.qkv"].numpy(), qkv)
    gate_up = np.concatenate([theirs[f"blk.0.ffn_{part}.weight"] for part in ("gate", "up")])
    np.testing.assert_array_equal(weights["layers.0.gate_up"].numpy(), gate_up)
    np.testing.assert_array_equal(weights["head"].numpy(), theirs["output.weight"])
    np.testing.assert_array_equal(weights["embedding"].numpy(), theirs["token_embd.weight"])
    assert {weight.dtype for weight in weights.values()} == {torch.float32}


def test_the_second_load_maps_what_the_first_prepared(cache: Path, tiny_path: Path) -> None:
    first, reports = load(tiny_path)
    assert reports.fractions["preparing the weights"][-1] == 1.0
    written = prepared_file(cache).stat()
    second, reports = load(tiny_path)
    assert not reports.prepared
    assert prepared_file(cache).stat().st_ino == written.st_ino
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("damage", ["flip", "truncate", "header", "empty"])
def test_a_damaged_cache_file_is_noticed_and_made_again(damage: str, cache: Path, tiny_path: Path) -> None:
    load(tiny_path)
    path = prepared_file(cache)
    good = path.read_bytes()
    bad = bytearray(good)
    if damage == "flip":
        bad[len(bad) // 2] ^= 1
    elif damage == "header":
        bad[0:8] = (1 << 50).to_bytes(8, "little")
    else:
        bad = bad[: len(bad) // 2 if damage == "truncate" else 0]
    path.write_bytes(bad)
    _, reports = load(tiny_path)
    assert reports.prepared
    assert path.read_bytes() == good


def test_another_file_of_the_same_name_gets_its_own_weights(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    first, _ = load(write_tiny_gguf(path, seed=1))
    second, reports = load(write_tiny_gguf(path, seed=2))
    assert reports.prepared
    assert not torch.equal(first["embedding"], second["embedding"])


def test_of_several_at_once_one_prepares(cache: Path, tiny_path: Path) -> None:
    results: list[Reports] = []
    threads = [Thread(target=lambda: results.append(load(tiny_path)[1])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert [reports.prepared for reports in results].count(True) == 1
    assert len(results) == 4
    assert [path.suffix for path in sorted((cache / "weights").iterdir())] == [".lock", ".safetensors"]


def test_a_file_without_all_its_data_is_refused(cache: Path, tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_path.read_bytes()[:-100])
    with pytest.raises(ModelUnsupported, match="incomplete"):
        load(path)
    assert not (cache / "weights").exists()


def test_tensors_that_do_not_fit_the_hyper_parameters_are_refused(cache: Path, tmp_path: Path) -> None:
    content = write_tiny_gguf(tmp_path / "m.gguf").read_bytes()
    for old, new, message in [
        (b"blk.0.attn_k.weight", b"blk.0.attn_x.weight", "tensor blk.0.attn_k.weight is missing"),
        (b"blk.1.ffn_up.weight", b"blk.0.ffn_uq.weight", "tensor blk.1.ffn_up.weight is missing"),
    ]:
        path = tmp_path / "renamed.gguf"
        path.write_bytes(content.replace(old, new))
        with pytest.raises(ModelUnsupported, match=message):
            load(path)
    key = b"llama.feed_forward_length" + (4).to_bytes(4, "little")
    path.write_bytes(content.replace(key + b"\x80", key + b"\x81"))
    with pytest.raises(ModelUnsupported, match=r"ffn_gate.weight is \(128, 64\), expected \(129, 64\)"):
        load(path)
