"""Every quantisation of GGUF that the ``gguf`` package knows: read right, or refused by name."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from infer_engine.model.architecture import read_architecture
from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.gguf_file import read_gguf
from infer_engine.model.gguf_tensors import GgufTensors
from infer_engine.model.store import no_progress
from infer_engine.model.weights import load_weights
from numpy.typing import NDArray
from support.tiny_model import write_tiny_gguf

ROWS, COLUMNS = 3, 512
REFUSED = {"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K", "Q1_0"}
READ = [kind for kind in gguf.GGML_QUANT_SIZES if kind.name not in REFUSED]


def random_bytes(kind: GGMLQuantizationType) -> NDArray[np.uint8]:
    """Rows of valid blocks: no byte is one that could make a scale, of whatever type and at whatever place,
    infinite or no number."""
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    finite = np.array([byte for byte in range(256) if byte & 0x70 != 0x70], np.uint8)
    return np.random.default_rng(int(kind)).choice(finite, (ROWS, COLUMNS // block * block_bytes))


def quantised(kind: GGMLQuantizationType) -> NDArray[np.uint8] | None:
    """Normally distributed numbers as ``kind``; None where the package only reads it."""
    values = np.random.default_rng(1).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    try:
        return gguf.quants.quantize(values, kind)
    except NotImplementedError:
        return None


def write(path: Path, tensors: dict[str, tuple[NDArray[np.uint8], GGMLQuantizationType]]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for name, (stored, kind) in tensors.items():
        writer.add_tensor(name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_all_types_of_one_file_are_read_as_the_package_reads_them(tmp_path: Path) -> None:
    stored = {kind.name: (random_bytes(kind), kind) for kind in READ}
    stored |= {
        f"{kind.name} quantised": (values, kind) for kind in READ if (values := quantised(kind)) is not None
    }
    tensors = GgufTensors(read_gguf(write(tmp_path / "all.gguf", stored)))
    assert len(READ) >= 26
    for name, (content, kind) in stored.items():
        expected = gguf.quants.dequantize(content, kind)
        tensors.check(name)
        values = tensors.read(name)
        assert (values.shape, values.dtype) == ((ROWS, COLUMNS), np.float32), name
        np.testing.assert_array_equal(values, expected, name)
        assert np.isfinite(values).all(), name


@pytest.mark.parametrize(
    ("kind", "most"),
    [("F16", 0.001), ("BF16", 0.01), ("Q8_0", 0.02), ("Q5_1", 0.1), ("Q4_0", 0.2), ("MXFP4", 0.3)],
)
def test_quantised_numbers_come_back(kind: str, most: float, tmp_path: Path) -> None:
    """Read right is also: near what was written."""
    values = np.random.default_rng(1).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    content = quantised(GGMLQuantizationType[kind])
    assert content is not None
    path = write(tmp_path / "one.gguf", {"x": (content, GGMLQuantizationType[kind])})
    error = GgufTensors(read_gguf(path)).read("x") - values
    assert np.sqrt((error**2).mean()) < most


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_other_types_are_refused_by_name(name: str, tmp_path: Path) -> None:
    kind = GGMLQuantizationType[name]
    path = write(tmp_path / "m.gguf", {"blk.0.x": (random_bytes(kind), kind)})
    with pytest.raises(
        ModelUnsupported, match=rf"m.gguf: tensor blk.0.x is quantised as {name}, which is not"
    ):
        GgufTensors(read_gguf(path)).check("blk.0.x")


def test_rows_that_are_no_whole_blocks_are_refused(cache: Path, tmp_path: Path) -> None:
    """A hidden size of 64 is a quarter of a K-quant's block."""
    path = write_tiny_gguf(tmp_path / "m.gguf")
    source = read_gguf(path)
    entry = source.tensors["blk.0.attn_q.weight"]
    for kind, why in [(GGMLQuantizationType.Q4_K, r"no multiple of 256 \(Q4_K\)"), (999, "unknown type 999")]:
        source.tensors[entry.name] = type(entry)(entry.name, entry.shape, int(kind), entry.offset)
        with pytest.raises(ModelUnsupported, match=why):
            load_weights(source, read_architecture(source), no_progress)


def test_a_model_of_mixed_quantisations_loads(cache: Path, tmp_path: Path) -> None:
    """As the usual mixes are: other types for other tensors, F32 for vectors."""
    plain = gguf.GGUFReader(write_tiny_gguf(tmp_path / "plain.gguf", hidden=256, layers=1))
    writer = gguf.GGUFWriter(tmp_path / "mixed.gguf", "llama")
    for field in plain.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind, item = field.types[0], field.types[-1]
            writer.add_key_value(
                field.name, field.contents(), kind, item if kind == gguf.GGUFValueType.ARRAY else None
            )
    kinds = {"attn_q": "Q4_K", "attn_k": "Q5_K", "attn_v": "Q6_K", "ffn_gate": "IQ4_XS", "ffn_up": "Q3_K"}
    expected: dict[str, NDArray[np.float32]] = {}
    for tensor in plain.tensors:
        short = tensor.name.split(".")[-2]
        kind = GGMLQuantizationType[kinds.get(short, "F32")]
        shape = tuple(tensor.shape.tolist())[::-1]
        stored = tensor.data if kind.name == "F32" else small_blocks(kind, shape)
        expected[short] = gguf.quants.dequantize(stored, kind)
        writer.add_tensor(tensor.name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    source = read_gguf(tmp_path / "mixed.gguf")
    weights = load_weights(source, read_architecture(source), no_progress)
    for name, parts in {
        "qkv": ["attn_q", "attn_k", "attn_v"],
        "gate_up": ["ffn_gate", "ffn_up"],
        "output": ["attn_output"],
    }.items():
        stacked = np.concatenate([expected[part] for part in parts])
        assert torch.equal(weights[f"layers.0.{name}"], torch.from_numpy(stacked)), name


def small_blocks(kind: GGMLQuantizationType, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(int(kind))
    return rng.integers(0, 0x3C, (shape[0], shape[1] // block * block_bytes), np.uint8)
