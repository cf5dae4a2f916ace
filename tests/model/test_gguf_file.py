import contextlib
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from infer_engine.model.architecture import read_architecture
from infer_engine.model.errors import ModelError, ModelUnavailable, ModelUnsupported
from infer_engine.model.gguf_file import GgufFile, read_gguf
from numpy.typing import NDArray
from support.tiny_model import write_tiny_gguf


def test_reads_what_the_gguf_package_reads(tiny_path: Path) -> None:
    ours, theirs = read_gguf(tiny_path), gguf.GGUFReader(tiny_path)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            assert ours.metadata[key] == field.contents(), key
    assert {(name, entry.shape, entry.kind, entry.offset) for name, entry in ours.tensors.items()} == {
        (tensor.name, tuple(tensor.shape.tolist())[::-1], int(tensor.tensor_type), tensor.data_offset)
        for tensor in theirs.tensors
    }


def test_a_file_that_ends_early_is_refused_wherever_it_ends(tiny_path: Path, tmp_path: Path) -> None:
    whole = tiny_path.read_bytes()
    header_bytes = min(entry.offset for entry in read_gguf(tiny_path).tensors.values())
    cut = tmp_path / "cut.gguf"
    for length in [*range(0, 300), *range(300, header_bytes - 32, 131)]:
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelUnsupported):
            read_gguf(cut)


def test_a_count_that_the_file_cannot_hold_is_refused_at_once(tmp_path: Path) -> None:
    huge = (1 << 60).to_bytes(8, "little")
    one, zero = (1).to_bytes(8, "little"), bytes(8)
    key = one + b"k" + (9).to_bytes(4, "little")
    hostile = {
        "tensors": b"GGUF" + (3).to_bytes(4, "little") + huge + zero,
        "keys": b"GGUF" + (3).to_bytes(4, "little") + zero + huge,
        "string": b"GGUF" + (3).to_bytes(4, "little") + zero + one + huge,
        "numbers": b"GGUF" + (3).to_bytes(4, "little") + zero + one + key + (4).to_bytes(4, "little") + huge,
        "strings": b"GGUF" + (3).to_bytes(4, "little") + zero + one + key + (8).to_bytes(4, "little") + huge,
        "nested": b"GGUF" + (3).to_bytes(4, "little") + zero + one + key + (9).to_bytes(4, "little") + huge,
        "version": b"GGUF" + (77).to_bytes(4, "little") + zero + zero,
    }
    for name, content in hostile.items():
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content + bytes(64))
        with pytest.raises(ModelUnsupported):
            read_gguf(path)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(changes=st.dictionaries(st.integers(0, 12_000), st.integers(0, 255), min_size=1, max_size=8))
def test_changed_bytes_end_in_a_model_or_a_model_error(
    tiny_path: Path, tmp_path: Path, changes: dict[int, int]
) -> None:
    content = bytearray(tiny_path.read_bytes())
    for position, byte in changes.items():
        content[position] = byte
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content)
    with contextlib.suppress(ModelError):
        assert read_architecture(read_gguf(damaged)).layers >= 1


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    for name, content in {"empty": b"", "text": b"hello, this is a text file", "short": b"GG"}.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ModelUnsupported, match=name):
            read_gguf(path)
    with pytest.raises(ModelUnavailable, match="missing"):
        read_gguf(tmp_path / "missing")


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "other.gguf", architecture="mamba")
    with pytest.raises(ModelUnsupported, match=r"'mamba' is not supported \(supported: llama, qwen2"):
        read_architecture(read_gguf(path))


def test_heads_that_do_not_share_evenly_are_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "uneven.gguf", kv_heads=3)
    with pytest.raises(ModelUnsupported, match="4 heads cannot share 3 KV heads"):
        read_architecture(read_gguf(path))


def test_a_vocabulary_larger_than_the_embedding_is_refused(tiny_path: Path) -> None:
    source = read_gguf(tiny_path)
    source.metadata["tokenizer.ggml.tokens"].append("one more")
    with pytest.raises(ModelUnsupported, match="the tokenizer has 270 tokens, the model 269"):
        read_architecture(source)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("llama.rope.scaling.type", "longrope", "is 'longrope', allowed are none, linear, yarn"),
        ("llama.rope.scaling.type", "yarn", "llama.rope.scaling.original_context_length is missing"),
        ("split.count", 3, "one of several parts"),
        ("llama.expert_count", 8, "mixture-of-experts"),
        ("llama.attention.sliding_window", 1024, "sliding-window"),
        ("llama.block_count", 0, "llama.block_count is 0, allowed is 1 to"),
        ("llama.embedding_length", "64", "should be int, not str"),
        ("llama.rope.freq_base", float("nan"), "allowed is a positive number"),
        ("llama.rope.dimension_count", 8, "must be equal and even"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(
    tiny_path: Path, key: str, value: object, why: str
) -> None:
    source = read_gguf(tiny_path)
    source.metadata[key] = value
    with pytest.raises(ModelUnsupported, match=why):
        read_architecture(source)


@pytest.mark.parametrize(
    ("divisors", "why"),
    [
        (np.ones(7, np.float32), r"rope_freqs.weight is \(7,\) of type 0, expected \(8,\) of type F32"),
        (np.ones(8, np.float16), r"rope_freqs.weight is \(8,\) of type 1"),
        (np.array([1, 2, 3, np.nan, 5, 6, 7, 8], np.float32), "must hold positive numbers"),
        (np.array([1, 2, 3, 0, 5, 6, 7, 8], np.float32), "must hold positive numbers"),
    ],
)
def test_scales_of_positions_are_checked(
    divisors: NDArray[np.float32], why: str, tiny_path: Path, tmp_path: Path
) -> None:
    """The tensor that files of Llama 3.1 carry."""
    writer = gguf.GGUFWriter(tmp_path / "scales.gguf", "llama")
    writer.add_tensor("rope_freqs.weight", divisors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model, scales = read_gguf(tiny_path), read_gguf(tmp_path / "scales.gguf")
    model.tensors.update(scales.tensors)
    with pytest.raises(ModelUnsupported, match=why):
        read_architecture(GgufFile(scales.path, model.size_bytes, model.metadata, model.tensors))


def test_positions_are_scaled_once(tiny_path: Path) -> None:
    source = read_gguf(tiny_path)
    source.metadata.update({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0})
    scaling = read_architecture(source).rope_scaling
    assert scaling is not None
    assert scaling.divisors == (4.0,) * 8
    source.tensors["rope_freqs.weight"] = source.tensors["blk.0.attn_norm.weight"]
    with pytest.raises(ModelUnsupported, match="positions are scaled twice"):
        read_architecture(source)


def test_nothing_of_a_file_reaches_a_terminal_as_an_escape(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", architecture="\x1b[31mred\x9b\u202e")
    with pytest.raises(ModelUnsupported) as caught:
        read_architecture(read_gguf(path))
    assert str(caught.value).isprintable()


def test_the_hyper_parameters_are_the_files(tiny_path: Path) -> None:
    architecture = read_architecture(read_gguf(tiny_path))
    assert (architecture.layers, architecture.hidden, architecture.heads) == (2, 64, 4)
    assert (architecture.kv_heads, architecture.head_dim, architecture.feed_forward) == (2, 16, 128)
    assert architecture.tied
    assert architecture.context_length == 2048
    # 2 (K and V) x 2 layers x 2 KV heads x 16 dimensions x 4 bytes
    assert architecture.kv_bytes_per_token(4) == 512
