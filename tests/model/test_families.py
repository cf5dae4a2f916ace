"""Every supported family, from a Hugging Face directory and from GGUF, against logits that transformers
computed (``make_expected_logits.py``)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from infer_engine.model.architecture import Architecture, read_architecture
from infer_engine.model.attention.paged import PagedAttention, Scratch, Span
from infer_engine.model.attention.pool import KvPool
from infer_engine.model.gguf_file import GgufFile, read_gguf
from infer_engine.model.hf_directory import HfDirectory, read_hf_directory
from infer_engine.model.linear import LinearKind
from infer_engine.model.llama import Llama
from infer_engine.model.store import no_progress
from infer_engine.model.weights import load_weights
from support.running import make_request, make_runner, run_all
from support.tiny_families import FAMILIES, PROMPT, TinyFamily, write_gguf, write_hf

CPU = torch.device("cpu")
EXPECTED = {
    name: torch.from_numpy(values)
    for name, values in np.load(Path(__file__).with_name("expected_logits.npz")).items()
}
BLOCK = 4
#: What fp32 sums in another order may differ by, for logits of up to 18.
CLOSE = {"atol": 1e-4, "rtol": 1e-5}


def by_name(name: str) -> TinyFamily:
    return next(model for model in FAMILIES if model.name == name)


@torch.inference_mode()
def logits_of(
    source: GgufFile | HfDirectory,
    counts: list[int],
    *,
    architecture: Architecture | None = None,
    kind: LinearKind = "fp32",
) -> torch.Tensor:
    """Logits after each token of the prompt, computed in chunks of ``counts`` through scattered pages."""
    architecture = architecture or read_architecture(source)
    model = Llama(architecture, load_weights(source, architecture, no_progress), kind, CPU)
    blocks = -(-len(PROMPT) // BLOCK)
    table = [(7 * n + 3) % blocks for n in range(blocks)]  # 7 and 10 are coprime
    pool, scratch = KvPool(architecture, blocks, BLOCK, model.dtype, CPU), Scratch(model.dtype, CPU)
    found: list[torch.Tensor] = []
    start = 0
    for count in counts:
        attention = PagedAttention(pool, [Span(start, count, table)], scratch, model.dtype)
        tokens = torch.tensor(PROMPT[start : start + count])
        positions = torch.arange(start, start + count)
        found.append(model(tokens, positions, attention, torch.arange(count)))
        start += count
    return torch.cat(found)


WHOLE = [len(PROMPT)]
#: Chunks that end within and at the end of blocks, then one token at a time.
CHUNKED = [7, 1, 8, 13, *[1] * 11]


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.name)
def test_logits_equal_those_of_transformers(model: TinyFamily, cache: Path, tmp_path: Path) -> None:
    directory = read_hf_directory(write_hf(tmp_path / model.name, model))
    torch.testing.assert_close(logits_of(directory, WHOLE), EXPECTED[model.name], **CLOSE)
    torch.testing.assert_close(logits_of(directory, CHUNKED), EXPECTED[model.name], **CLOSE)
    file = read_gguf(write_gguf(tmp_path / f"{model.name}.gguf", model))
    torch.testing.assert_close(logits_of(file, WHOLE), EXPECTED[model.name], **CLOSE)


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.name)
def test_a_runner_generates_what_the_logits_say(
    model: TinyFamily, cache: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Teacher-forced: each prefix of the prompt asks for one token."""
    path = write_hf(tmp_path / model.name, model, shards=3)
    runner = make_runner(model=str(path), dtype="fp32", device="cpu", kv_blocks=64)
    request.addfinalizer(runner.close)
    asked = [make_request(end, PROMPT[:end], max_tokens=1) for end in (1, 9, 23, len(PROMPT))]
    run_all(runner, asked, token_budget=16)
    for each in asked:
        assert each.output == [int(EXPECTED[model.name][len(each.prompt) - 1].argmax())]
    assert runner.info.model == model.name


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama-bias", "llama-yarn"])
@pytest.mark.parametrize("kind", ["packed_fp16", "bf16"])
def test_the_sixteen_bit_paths_come_close(name: str, kind: LinearKind, cache: Path, tmp_path: Path) -> None:
    directory = read_hf_directory(write_hf(tmp_path / name, by_name(name)))
    error = logits_of(directory, CHUNKED, kind=kind) - EXPECTED[name]
    assert error.norm() / EXPECTED[name].norm() < (0.005 if kind == "packed_fp16" else 0.1)


@pytest.mark.parametrize("model", [m for m in FAMILIES if m.rope], ids=lambda model: model.name)
def test_scaled_positions_are_not_plain_ones(model: TinyFamily, cache: Path, tmp_path: Path) -> None:
    """Else the comparisons above would prove nothing of the scaling."""
    directory = read_hf_directory(write_hf(tmp_path / model.name, model))
    architecture = read_architecture(directory)
    assert not architecture.is_plain
    plain = logits_of(directory, WHOLE, architecture=replace(architecture, rope_scaling=None))
    assert (plain - EXPECTED[model.name]).abs().max() > 0.1


def test_what_is_plain_is_told_apart(tmp_path: Path) -> None:
    plain = {
        model.name: read_architecture(read_hf_directory(write_hf(tmp_path / model.name, model))).is_plain
        for model in FAMILIES
    }
    assert {name for name, is_plain in plain.items() if is_plain} == {
        "llama",
        "llama-grouped-tied",
        "llama-wide-heads",
    }
