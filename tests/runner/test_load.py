from pathlib import Path

import pytest
import torch
from infer_engine.core.plan import Chunk, Plan
from infer_engine.model.errors import MemoryShort, ModelUnsupported
from infer_engine.model.linear import PackedFp16Linear
from infer_engine.runner.load import _cuda_kind, load_runner
from infer_engine.runner.memory import _container_bytes, available_bytes, pool_blocks
from infer_engine.runner.runner import RunnerInfo
from infer_engine.settings import ReplicaSettings
from support.running import make_request, make_runner


def test_a_runner_tells_what_it_is(tiny_path: Path, tiny_cache: None) -> None:
    runner = make_runner(model=str(tiny_path), dtype="fp32", device="cpu", kv_blocks=10)
    assert runner.info == RunnerInfo(
        model="tiny",
        vocab_size=269,
        context_length=2048,
        kv_blocks=10,
        block_size=16,
        kv_bytes_per_token=512,
        # 4 bytes x (the output matrix, and twice q, k, v, output, gate, up, down)
        weight_bytes=4 * (269 * 64 + 2 * (64 * 64 + 32 * 64 * 2 + 64 * 64 + 3 * 128 * 64)),
        device="cpu",
        dtype="fp32",
        host_blocks=10,
        paths={"model": "torch fp32"},
    )


def test_the_default_on_a_cpu_takes_half_the_memory_or_less(tiny_path: Path, tiny_cache: None) -> None:
    exact = make_runner(model=str(tiny_path), dtype="fp32", device="cpu", kv_blocks=10)
    packed = make_runner(model=str(tiny_path), device="cpu", kv_blocks=10)
    assert packed.info.dtype == "fp16"
    # Kernels pad a matrix to whole panels.
    assert packed.info.weight_bytes * 2 <= exact.info.weight_bytes * 1.05
    assert packed.info.kv_bytes_per_token == exact.info.kv_bytes_per_token


def test_progress_grows_to_one(tiny_path: Path, tiny_cache: None) -> None:
    reports: list[tuple[float, str]] = []
    settings = ReplicaSettings(model=str(tiny_path), kv_blocks=10)
    load_runner(settings, lambda fraction, what: reports.append((fraction, what)))
    fractions = [fraction for fraction, _ in reports]
    assert fractions == sorted(fractions)
    assert reports[-1] == (1.0, "ready")


def test_threads_are_set(tiny_path: Path, tiny_cache: None) -> None:
    before = torch.get_num_threads()
    try:
        make_runner(model=str(tiny_path), threads=1, kv_blocks=10)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_pool_beyond_the_machine_is_refused_with_both_numbers(tiny_path: Path, tiny_cache: None) -> None:
    with pytest.raises(
        MemoryShort, match=r"1000000000 KV blocks need 8,192,000,000,000 bytes; .* is [\d,]+ bytes"
    ):
        make_runner(model=str(tiny_path), kv_blocks=10**9)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(tiny_path: Path, tiny_cache: None) -> None:
    with pytest.raises(ModelUnsupported, match="--device cpu"):
        make_runner(model=str(tiny_path), device="cuda")


def test_a_closed_runner_does_not_run(tiny_path: Path, tiny_cache: None) -> None:
    runner = make_runner(model=str(tiny_path), kv_blocks=10)
    runner.close()
    runner.close()
    request = make_request("r", [5])
    request.block_table = [0]
    with pytest.raises(RuntimeError, match="closed"):
        runner.execute(Plan(step=1, chunks=[Chunk(request, 0, 1, samples=True)]))


def test_an_unsized_pool_takes_half_its_part_and_at_most_1024_blocks() -> None:
    assert pool_blocks(None, 100, 100_000, 1) == 500
    assert pool_blocks(None, 100, 100_000, 4) == 125
    assert pool_blocks(None, 100, 10**9, 1) == 1024
    assert pool_blocks(900, 100, 100_000, 1) == 900
    with pytest.raises(
        MemoryShort, match=r"501 KV blocks need 50,100 bytes; .* 50,000 bytes, which holds 500"
    ):
        pool_blocks(501, 100, 100_000, 2)
    with pytest.raises(MemoryShort, match=r"1 KV blocks need 100 bytes; .* 50 bytes, which holds 0"):
        pool_blocks(None, 100, 150, 3)


@pytest.mark.parametrize("version", [1, 2])
def test_a_containers_limit_counts(version: int, tmp_path: Path) -> None:
    files = {
        1: (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file",
        ),
        2: ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    }[version]
    (tmp_path / "memory").mkdir()
    for name, text in zip(files[:3], ["1000", "700", f"anon 600\n{files[3]} 90\n"], strict=True):
        (tmp_path / name).write_text(text)
    assert _container_bytes(tmp_path) == 390
    (tmp_path / files[0]).write_text("max\n")
    assert _container_bytes(tmp_path) > 1 << 50


def test_available_memory_is_a_plausible_number() -> None:
    assert 10**7 < available_bytes() < 1 << 50


def test_fp16_on_a_cpu_is_fp16_weights_or_nothing(
    tiny_path: Path, tiny_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make_runner(model=str(tiny_path), dtype="fp16", device="cpu", kv_blocks=4).info.dtype == "fp16"
    monkeypatch.setattr(PackedFp16Linear, "works", lambda: False)
    with pytest.raises(ModelUnsupported, match="no fp16 weights for this processor; use --dtype fp32"):
        make_runner(model=str(tiny_path), dtype="fp16", device="cpu", kv_blocks=4)


def test_bf16_on_a_cpu_needs_a_cpu_that_has_it(
    tiny_path: Path, tiny_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    runner = make_runner(model=str(tiny_path), dtype="bf16", device="cpu", kv_blocks=4)
    assert (runner.info.dtype, runner.info.kv_bytes_per_token) == ("bf16", 256)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, "avx2": True})
    with pytest.raises(ModelUnsupported, match=r"no bf16 arithmetic, .*use --dtype auto"):
        make_runner(model=str(tiny_path), dtype="bf16", device="cpu", kv_blocks=4)


def test_a_gpus_dtype_is_what_it_computes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_bf16, kinds in ((True, ["bf16", "fp32", "fp16", "bf16"]), (False, ["fp16", "fp32", "fp16"])):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, has=has_bf16: has)
        for dtype, kind in zip(("auto", "fp32", "fp16", "bf16"), kinds, strict=False):
            assert _cuda_kind(dtype) == kind
    with pytest.raises(ModelUnsupported, match="--dtype fp16"):
        _cuda_kind("bf16")
