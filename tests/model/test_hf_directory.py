"""Hugging Face directories: what is wrong with one is said, with the name of its file, and nothing is
allocated by it."""

import contextlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from infer_engine.model.architecture import read_architecture
from infer_engine.model.errors import ModelError, ModelUnavailable, ModelUnsupported
from infer_engine.model.hf_directory import read_hf_directory
from infer_engine.model.source import open_source
from infer_engine.model.store import no_progress, resolve
from infer_engine.model.weights import Weights, load_weights
from support.tiny_families import LLAMA3, TinyFamily, weights_of, write_hf

LLAMA = TinyFamily(name="m", kv_heads=2)
QWEN3 = TinyFamily(name="m", family="qwen3", kv_heads=2, head_dim=16)
INDEX = "model.safetensors.index.json"


def load(path: Path) -> Weights:
    source = open_source(path)
    return load_weights(source, read_architecture(source), no_progress)


def rewrite(path: Path, **tensors: Any) -> Path:
    """The directory ``path``, its single file holding other tensors; None takes one out."""
    weights: dict[str, Any] = {**weights_of(LLAMA), **tensors}
    kept = {name: values for name, values in weights.items() if values is not None}
    safetensors.numpy.save_file(kept, path / "model.safetensors")
    return path


def with_config(path: Path, **values: Any) -> Path:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **values}))
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_are_the_stored_tensors(dtype: torch.dtype, cache: Path, tmp_path: Path) -> None:
    path = write_hf(tmp_path / "m", LLAMA)
    stored = {name: torch.from_numpy(values).to(dtype) for name, values in weights_of(LLAMA).items()}
    safetensors.torch.save_file(stored, path / "model.safetensors")
    weights = load(path)
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    assert torch.equal(weights["embedding"], stored["model.embed_tokens.weight"].float())
    gate_up = [stored[f"model.layers.1.mlp.{name}_proj.weight"].float() for name in ("gate", "up")]
    assert torch.equal(weights["layers.1.gate_up"], torch.cat(gate_up))
    queries = stored["model.layers.0.self_attn.q_proj.weight"].float()
    # Rows 0 and 4 of a head of width 8 are a rotated pair.
    assert torch.equal(weights["layers.0.qkv"][:2], queries[[0, 4]])
    assert torch.equal(
        weights["layers.0.qkv"][-16:], stored["model.layers.0.self_attn.v_proj.weight"].float()
    )


def test_a_directory_is_found_and_named(cache: Path, tmp_path: Path) -> None:
    path = write_hf(tmp_path / "Qwen2.5-tiny", LLAMA)
    assert resolve(f"{path}/") == path
    assert read_architecture(open_source(path)).name == "Qwen2.5-tiny"


def test_another_configuration_gets_its_own_prepared_weights(cache: Path, tmp_path: Path) -> None:
    """The order of rows follows from the number of heads."""
    path = write_hf(tmp_path / "m", LLAMA)
    first = load(path)["layers.0.qkv"].clone()
    second = load(with_config(path, num_attention_heads=2, num_key_value_heads=1))["layers.0.qkv"]
    assert not torch.equal(first, second)


def test_files_may_be_links_and_shards_lie_beside_their_index(cache: Path, tmp_path: Path) -> None:
    path = write_hf(tmp_path / "m", LLAMA, shards=2)
    expected = {name: values.clone() for name, values in load(path).items()}
    (tmp_path / "elsewhere").mkdir()
    for file in path.glob("*.safetensors"):
        file.rename(tmp_path / "elsewhere" / file.name)
        file.symlink_to(tmp_path / "elsewhere" / file.name)
    found = load(path)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize(
    "name",
    ["../secret.safetensors", "/etc/x.safetensors", "a/b.safetensors", "x.bin", "", 7, None, ".safetensors"],
)
def test_an_index_that_points_elsewhere_is_refused(name: Any, tmp_path: Path) -> None:
    path = write_hf(tmp_path / "m", LLAMA, shards=2)
    index = json.loads((path / INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = name
    (path / INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelUnsupported, match=rf"m/{INDEX}: weight_map names"):
        read_hf_directory(path)


def test_an_index_must_agree_with_its_files(tmp_path: Path) -> None:
    path = write_hf(tmp_path / "m", LLAMA, shards=2)
    index = json.loads((path / INDEX).read_text())
    first, second = sorted(set(index["weight_map"].values()))
    for change, error, why in [
        ({"extra.weight": first}, ModelUnsupported, "'extra.weight' is not in model-00001"),
        ({"extra.weight": "none.safetensors"}, ModelUnavailable, "cannot read m/none.safetensors"),
    ]:
        (path / INDEX).write_text(json.dumps({"weight_map": {**index["weight_map"], **change}}))
        with pytest.raises(error, match=why):
            read_hf_directory(path)
    for empty in ({}, None, [1]):
        (path / INDEX).write_text(json.dumps({"weight_map": empty}))
        with pytest.raises(ModelUnsupported, match="weight_map"):
            read_hf_directory(path)
    (path / INDEX).write_text(json.dumps(index))
    (path / second).write_bytes((path / first).read_bytes())
    with pytest.raises(ModelUnsupported, match=r"is in model-00001-of-00002.safetensors too"):
        read_hf_directory(path)


def test_all_tensors_that_are_wrong_are_named(cache: Path, tmp_path: Path) -> None:
    path = write_hf(tmp_path / "m", LLAMA)
    rewrite(
        path,
        **{
            "model.norm.weight": None,
            "model.layers.0.mlp.up_proj.weight": np.zeros((48, 31), np.float32),
            "model.layers.0.mlp.router.weight": np.zeros(3, np.float32),
        },
    )
    with pytest.raises(ModelUnsupported) as caught:
        load(path)
    assert str(caught.value) == (
        "m: tensor model.norm.weight is missing; "
        "tensor model.layers.0.mlp.up_proj.weight is (48, 31), expected (48, 32); "
        "tensor 'model.layers.0.mlp.router.weight' is of no known use in a llama model"
    )
    rewrite(path, **{f"x{n}": np.zeros(1, np.float32) for n in range(500)})
    with pytest.raises(ModelUnsupported, match="; and 492 more") as caught:
        load(path)
    assert len(str(caught.value)) < 1000
    assert not (cache / "weights").exists()


def test_what_older_exports_add_is_no_harm(cache: Path, tmp_path: Path) -> None:
    table = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(4, np.float32)}
    assert "head" in load(rewrite(write_hf(tmp_path / "m", LLAMA), **table))
    tied = with_config(tmp_path / "m", tie_word_embeddings=True)
    assert "head" not in load(tied)


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_other_types_of_numbers_are_refused(dtype: Any, cache: Path, tmp_path: Path) -> None:
    path = rewrite(write_hf(tmp_path / "m", LLAMA), **{"model.norm.weight": np.ones(32, dtype)})
    with pytest.raises(
        ModelUnsupported, match=r"m/model.safetensors: tensor model.norm.weight is of type [IF]"
    ):
        load(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused(value: float, cache: Path, tmp_path: Path) -> None:
    spoilt = np.ones(32, np.float32)
    spoilt[5] = value
    path = rewrite(write_hf(tmp_path / "m", LLAMA), **{"model.norm.weight": spoilt})
    with pytest.raises(ModelUnsupported, match=r"m is damaged: tensor model.norm.weight holds what is"):
        load(path)
    assert list((cache / "weights").glob("*.safetensors")) == []


def header(**entries: Any) -> bytes:
    content = json.dumps(entries).encode()
    return struct.pack("<Q", len(content)) + content


def entry(start: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


HOSTILE = {
    "nothing": b"",
    "a few bytes": b"abc",
    "a huge header": struct.pack("<Q", 1 << 62) + bytes(100),
    "a header beyond the end": struct.pack("<Q", 1 << 20) + bytes(100),
    "no JSON": struct.pack("<Q", 8) + b"not json",
    "overlap": header(a=entry(0, 16, [4]), b=entry(8, 24, [4])) + bytes(24),
    "a gap": header(a=entry(0, 16, [4]), b=entry(32, 48, [4])) + bytes(48),
    "data beyond the end": header(a=entry(0, 1 << 40, [1 << 38])) + bytes(16),
    "a shape that is not its size": header(a=entry(0, 16, [5])) + bytes(16),
    "a shape that overflows": header(a=entry(0, 16, [1 << 62, 1 << 62])) + bytes(16),
    "a negative shape": header(a=entry(0, 16, [-4])) + bytes(16),
    "an unknown type": header(a=entry(0, 16, [4], "F999")) + bytes(16),
    "bytes left over": header(a=entry(0, 16, [4])) + bytes(20),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_are_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = write_hf(tmp_path / "m", LLAMA)
    (path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelUnsupported, match=r"m/model.safetensors"):
        read_hf_directory(path)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    path = write_hf(tmp_path / "m", LLAMA)
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    with pytest.raises(ModelUnavailable, match=r"cannot read m/model.safetensors: .*pickled weights"):
        read_hf_directory(path)
    (path / "config.json").unlink()
    with pytest.raises(ModelUnavailable, match=r"cannot read m/config.json"):
        read_hf_directory(path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_pipe_is_refused_and_not_waited_for(name: str, tmp_path: Path) -> None:
    path = write_hf(tmp_path / "m", LLAMA)
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(ModelUnsupported, match=f"m/{name} is no regular file"):
        read_hf_directory(path)


def test_a_file_that_ends_early_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    path = write_hf(tmp_path / "m", LLAMA)
    file = path / "model.safetensors"
    whole = file.read_bytes()
    for length in [*range(0, 3000, 97), *range(3000, len(whole), 9973), len(whole) - 1]:
        file.write_bytes(whole[:length])
        with pytest.raises(ModelUnsupported, match=r"m/model.safetensors"):
            read_hf_directory(path)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(changes=st.dictionaries(st.integers(0, 2500), st.integers(0, 255), min_size=1, max_size=6))
def test_changed_bytes_end_in_a_model_or_a_model_error(
    cache: Path, tmp_path: Path, changes: dict[int, int]
) -> None:
    path = write_hf(tmp_path / "m", LLAMA)
    file = path / "model.safetensors"
    content = bytearray(file.read_bytes())
    for position, byte in changes.items():
        content[position] = byte
    file.write_bytes(content)
    with contextlib.suppress(ModelError):
        assert read_hf_directory(path).tensors


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"model_type": "mistral"}, "model_type is 'mistral', allowed are 'llama', 'qwen2', 'qwen3'"),
        ({"model_type": None}, "model_type is missing"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures is .* allowed is"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is given"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', allowed is 'silu'"),
        ({"mlp_bias": True}, "mlp_bias is True, allowed is False"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, allowed is 1.0"),
        ({"use_sliding_window": True}, "use_sliding_window is True, allowed is False"),
        ({"sliding_window": 4096}, "sliding_window is given"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types holds others"),
        ({"layer_types": 7}, "layer_types holds others"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3 KV heads evenly"),
        ({"num_key_value_heads": 5}, "num_key_value_heads is 5, allowed is 1 to 4"),
        ({"hidden_size": 0}, "hidden_size is 0, allowed is 1 to"),
        ({"hidden_size": 10**300}, "hidden_size is a huge number, allowed is 1 to"),
        ({"hidden_size": True}, "hidden_size should be int, not bool"),
        ({"hidden_size": "32"}, "hidden_size should be int, not str"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"head_dim": 7}, "head_dim is 7, allowed are even numbers"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan, allowed is a positive number"),
        ({"rope_theta": 0}, "rope_theta is 0.0, allowed is a positive number"),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "rope_type is 'dynamic', allowed are default, linear",
        ),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope_type is 'longrope'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling: factor is missing"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 0}},
            "factor is 0.0, allowed is a positive number",
        ),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "high_freq_factor is 1.0, allowed is more"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "mscale": 1.0}}, "mscale is given"),
        ({"rope_scaling": [1]}, "rope_scaling should be an object, not list"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "positions that differ by layer"),
        ({"rope_parameters": {"a\x1b": {}}}, "positions that differ"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings should be bool, not str"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(values: dict[str, Any], why: str, tmp_path: Path) -> None:
    path = with_config(write_hf(tmp_path / "m", LLAMA), **values)
    with pytest.raises(ModelUnsupported, match=rf"^m/config.json.*{why}") as caught:
        read_architecture(read_hf_directory(path))
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def test_both_names_of_rotary_settings_are_read(tmp_path: Path) -> None:
    path = write_hf(tmp_path / "m", LLAMA)
    older = read_architecture(
        read_hf_directory(with_config(path, rope_scaling={"type": "linear", "factor": 2}))
    )
    config = json.loads((path / "config.json").read_text())
    del config["rope_theta"], config["rope_scaling"]
    newer = {"rope_theta": 500.0, "rope_type": "linear", "factor": 2.0}
    (path / "config.json").write_text(json.dumps({**config, "rope_parameters": newer}))
    assert read_architecture(read_hf_directory(path)) == older
    assert older.rope_scaling is not None
    assert older.rope_scaling.divisors == (2.0,) * 4


def test_what_a_window_that_is_off_says_is_no_harm(tmp_path: Path) -> None:
    """As in the configurations of Qwen2."""
    path = with_config(
        write_hf(tmp_path / "m", QWEN3), use_sliding_window=False, sliding_window=32768, max_window_layers=1
    )
    architecture = read_architecture(read_hf_directory(path))
    assert architecture.qk_norm
    assert not architecture.qkv_bias
    assert architecture.head_dim == 16
