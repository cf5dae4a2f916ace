"""The default model, exported from its GGUF file to a Hugging Face directory, is the same model."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from infer_engine.model.architecture import Architecture, read_architecture
from infer_engine.model.gguf_file import read_gguf
from infer_engine.model.gguf_tensors import GgufTensors
from infer_engine.model.store import resolve
from infer_engine.settings import DEFAULT_MODEL
from numpy.typing import NDArray
from support.running import make_request, make_runner, run_all
from support.tiny_families import halves_apart

EXPECTED = Path(__file__).parents[1] / "model" / "expected_ids.json"
TIE = 1e-3
TOKENS = 16
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


@pytest.fixture
def default_file() -> Path:
    return resolve(DEFAULT_MODEL)


@pytest.fixture
def room(default_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A gigabyte that does not stay behind; the default model was found before the cache moves here."""
    with tempfile.TemporaryDirectory() as path:
        monkeypatch.setenv("INFER_CONSOLE_CACHE", f"{path}/cache")
        yield Path(path)


def export(file: Path, directory: Path) -> Path:
    directory.mkdir()
    source = read_gguf(file)
    a = read_architecture(source)
    tensors = GgufTensors(source)
    weights: dict[str, NDArray[np.float32]] = {}
    for name in tensors.shapes():
        values = tensors.read(name)
        if ".attn_q." in name or ".attn_k." in name:
            values = halves_apart(values, a.heads if "_q." in name else a.kv_heads)
        weights[hf_name(name)] = np.ascontiguousarray(values)
    half = len(weights) // 2
    names = list(weights)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:half], names[half:])):
        shard = f"model-{number}.safetensors"
        safetensors.numpy.save_file({name: weights[name] for name in part}, directory / shard)
        weight_map |= dict.fromkeys(part, shard)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (directory / "config.json").write_text(json.dumps(config(a)))
    return directory


def hf_name(name: str) -> str:
    if name in OUTER:
        return OUTER[name]
    _, number, short, _ = name.split(".")
    return f"model.layers.{number}.{NAMES[short]}.weight"


def config(a: Architecture) -> dict[str, object]:
    return {
        "model_type": "llama",
        "hidden_size": a.hidden,
        "intermediate_size": a.feed_forward,
        "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "vocab_size": a.vocab_size,
        "max_position_embeddings": a.context_length,
        "rms_norm_eps": a.norm_epsilon,
        "rope_theta": a.rope_base,
        "tie_word_embeddings": a.tied,
    }


@pytest.mark.model
@pytest.mark.apart
@pytest.mark.timeout(900)
def test_the_exported_default_model_continues_as_in_transformers(default_file: Path, room: Path) -> None:
    """The ids that transformers generated from the GGUF file, in fp32."""
    directory = export(default_file, room / "exported")
    runner = make_runner(model=str(directory), dtype="fp32", device="cpu", kv_blocks=64)
    cases = [case for case in json.loads(EXPECTED.read_text())["cases"] if len(case["prompt"]) < 60][:4]
    requests = [make_request(index, case["prompt"], max_tokens=TOKENS) for index, case in enumerate(cases)]
    run_all(runner, requests)
    runner.close()
    for request, case in zip(requests, cases, strict=True):
        different = [n for n in range(TOKENS) if request.output[n] != case["expected"][n]]
        assert not different or case["gaps"][different[0]] < TIE, request.id
