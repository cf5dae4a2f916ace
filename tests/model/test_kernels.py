"""The compiled kernels against torch and numpy."""

import json
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from infer_engine.model.architecture import Architecture, read_architecture
from infer_engine.model.attention.paged import PagedAttention, Scratch, Span
from infer_engine.model.attention.pool import KvPool
from infer_engine.model.gguf_file import GgufFile, read_gguf
from infer_engine.model.kernels import choose
from infer_engine.model.llama import Llama
from infer_engine.model.store import no_progress
from infer_engine.model.weights import load_weights
from numpy.typing import NDArray
from support.tiny_model import TensorType, write_tiny_gguf

pytest.importorskip("numba")
from infer_engine.model.kernels import compiled

compiled.use_cache()  # before anything is compiled
from infer_engine.model.kernels import jit  # noqa: E402
from infer_engine.model.kernels.micro import GROUP  # noqa: E402
from infer_engine.model.kernels.model import KernelLlama  # noqa: E402
from infer_engine.model.kernels.packing import Packed, pack  # noqa: E402
from infer_engine.model.kernels.products import BITS_4, BITS_8, HALF, multiply_panel  # noqa: E402
from infer_engine.model.kernels.rows import exponential, quantise  # noqa: E402
from infer_engine.model.kernels.simd import PANEL, SIMD  # noqa: E402
from infer_engine.model.kernels.stored import StoredMatrices  # noqa: E402
from infer_engine.model.kernels.team import Team  # noqa: E402

SWEEP = Path(__file__).parents[1] / "support" / "kernel_sweep.py"
CPU = torch.device("cpu")
Floats = NDArray[np.float32]


def multiply(packed: Packed, x: Floats, rows: int) -> Floats:
    """The kernels' ``x`` times the transposed matrix of ``rows`` rows."""
    panels = -(-rows // PANEL)
    shorts = np.zeros(x.shape, np.int16)
    scales = np.zeros((len(x), x.shape[1] // GROUP, 2), np.float32)
    for row in range(len(x)):
        quantise(x[row], x.shape[1], shorts[row], scales[row])
    out = np.full((len(x), panels * PANEL), np.nan, np.float32)
    for panel in range(panels):
        at = out.ctypes.data + 4 * PANEL * panel
        address = packed.data.ctypes.data
        multiply_panel(
            packed.kind, address, panel, x.shape[1], (x, shorts, scales), len(x), at, out.strides[0], 0
        )
    return out[:, :rows]


@pytest.mark.parametrize(("name", "kind"), [("Q4_0", BITS_4), ("Q4_1", BITS_4), ("Q8_0", BITS_8)])
def test_quantised_products_are_those_of_the_dequantised_weights(name: str, kind: int) -> None:
    rng = np.random.default_rng(1)
    quantisation = gguf.GGMLQuantizationType[name]
    stored = gguf.quants.quantize(rng.standard_normal((70, 96)).astype(np.float32), quantisation)
    weight = gguf.quants.dequantize(stored, quantisation).astype(np.float64)
    packed = pack([(quantisation, stored)], lambda: pytest.fail("there is an exact packing"))
    assert packed.kind == kind
    # Activations that 16 bits hold exactly: what is left is rounding in fp32.
    exact = rng.integers(-32767, 32768, (15, 96)).astype(np.float32)
    exact[:, ::GROUP] = 32767
    np.testing.assert_allclose(multiply(packed, exact, 70), exact @ weight.T, rtol=2e-6, atol=2.0)
    x = rng.standard_normal((15, 96)).astype(np.float32)
    np.testing.assert_allclose(multiply(packed, x, 70), x @ weight.T, atol=1e-3)


def test_other_weights_are_rounded_to_fp16_alone() -> None:
    rng = np.random.default_rng(2)
    weight = rng.standard_normal((50, 72)).astype(np.float32)
    x = rng.standard_normal((7, 72)).astype(np.float32)
    packed = pack(None, lambda: torch.from_numpy(weight))
    assert packed.kind == HALF
    rounded = weight.astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(multiply(packed, x, 50), x @ rounded.T, rtol=1e-5, atol=1e-5)


def test_scales_that_fp16_cannot_hold_fall_back_to_fp16_weights() -> None:
    """A minimum of -128 times the scale would be infinite."""
    stored = gguf.quants.quantize(np.full((4, 32), 1e5, np.float32), gguf.GGMLQuantizationType.Q8_0)
    dense = torch.ones(4, 32)
    assert pack([(gguf.GGMLQuantizationType.Q8_0, stored)], lambda: dense).kind == HALF


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((PANEL, 64)).astype(np.float32)
    stored = gguf.quants.quantize(weight, gguf.GGMLQuantizationType.Q4_1)
    packed = pack([(gguf.GGMLQuantizationType.Q4_1, stored)], lambda: torch.from_numpy(weight))
    x = rng.standard_normal((15, 64)).astype(np.float32)
    together = multiply(packed, x, PANEL)
    for row in range(15):
        assert (multiply(packed, x[row : row + 1], PANEL)[0] == together[row]).all()


def test_the_exponential_is_that_of_libm() -> None:
    for x in np.linspace(-80, 80, 400, dtype=np.float32):
        assert exponential(x) == pytest.approx(np.exp(np.float64(x)), rel=3e-7)
    assert exponential(np.float32(-1e30)) < 1e-37


class Pair:
    """The same tiny model twice, on a pool each."""

    def __init__(self, path: Path, threads: int) -> None:
        source = read_gguf(path)
        self.architecture: Architecture = read_architecture(source)
        weights = load_weights(source, self.architecture, no_progress)
        self.reference = Llama(self.architecture, weights, "fp32", CPU)
        self.kernels = KernelLlama(self.architecture, weights, StoredMatrices(source), threads)
        self.pools = [KvPool(self.architecture, 96, 16, torch.float32, CPU) for _ in range(2)]

    def run(self, spans: list[Span], tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.cat([torch.arange(span.start, span.start + span.count) for span in spans])
        rows = np.cumsum([span.count for span in spans]) - 1
        attention = PagedAttention(self.pools[0], spans, Scratch(torch.float32, CPU), torch.float32)
        expected = self.reference(tokens, positions, attention, torch.from_numpy(rows))
        actual = self.kernels(tokens, positions, spans, self.pools[1], rows.tolist())
        return actual.clone(), expected


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "tensor_type", "tolerance"),
    [(4, 2, 64, "Q4_1", 5e-4), (2, 2, 80, "Q8_0", 5e-4), (6, 2, 128, "F32", 2e-3), (3, 1, 32, "F16", 1e-4)],
)
def test_logits_are_those_of_torch(
    heads: int,
    kv_heads: int,
    head_dim: int,
    tensor_type: TensorType,
    tolerance: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prompts whole and in chunks, then decodes beside a prompt, over scattered blocks and lengths that end
    anywhere."""
    monkeypatch.setenv("INFER_CONSOLE_CACHE", str(tmp_path))
    path = write_tiny_gguf(
        tmp_path / "tiny.gguf",
        hidden=heads * head_dim,
        heads=heads,
        kv_heads=kv_heads,
        feed_forward=160,
        tensor_type=tensor_type,
    )
    with torch.inference_mode():
        pair = Pair(path, threads=2)
        generator = torch.Generator().manual_seed(4)
        blocks = torch.randperm(96, generator=generator).tolist()
        lengths = [1, 17, 300, 529]
        tables = [[blocks.pop() for _ in range(length // 16 + 1)] for length in lengths]

        def check(spans: list[Span]) -> None:
            tokens = torch.randint(0, 250, (sum(span.count for span in spans),), generator=generator)
            actual, expected = pair.run(spans, tokens)
            assert float((actual - expected).abs().max()) < tolerance * float(expected.abs().max())

        try:
            check([Span(0, length, table) for length, table in zip(lengths[:3], tables[:3], strict=True)])
            check([Span(0, 100, tables[3])])
            decodes = [Span(length, 1, table) for length, table in zip(lengths[:3], tables[:3], strict=True)]
            check([*decodes[::-1], Span(100, 429, tables[3])])
            check([Span(529, 1, tables[3])])
        finally:
            pair.kernels.close()


def test_the_runner_computes_with_kernels_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFER_CONSOLE_CACHE", str(tmp_path))
    architecture, weights, source = loaded(write_tiny_gguf(tmp_path / "tiny.gguf", hidden=128))
    model = choose.kernel_model(architecture, weights, source, 16, no_progress)
    assert model is not None
    assert model.path.startswith("kernels avx")
    model.close()


def loaded(path: Path) -> tuple[Architecture, dict[str, torch.Tensor], GgufFile]:
    source = read_gguf(path)
    architecture = read_architecture(source)
    return architecture, load_weights(source, architecture, no_progress), source


@pytest.mark.parametrize(
    ("hidden", "block_size", "reason"), [(40, 16, "head dimension"), (128, 12, "block size")]
)
def test_what_the_kernels_cannot_do_is_left_to_torch(
    hidden: int,
    block_size: int,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("INFER_CONSOLE_CACHE", str(tmp_path))
    architecture, weights, source = loaded(write_tiny_gguf(tmp_path / "tiny.gguf", hidden=hidden))
    assert choose.kernel_model(architecture, weights, source, block_size, no_progress) is None  # type: ignore[arg-type]
    assert reason in caplog.text


def test_without_numba_torch_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("INFER_CONSOLE_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "infer_engine.model.kernels.simd", None)
    monkeypatch.delattr("infer_engine.model.kernels.simd")
    architecture, weights, source = loaded(write_tiny_gguf(tmp_path / "tiny.gguf"))
    assert choose.kernel_model(architecture, weights, source, 16, no_progress) is None  # type: ignore[arg-type]
    assert "numba is not installed" in caplog.text


def test_kernels_that_compute_wrongly_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("INFER_CONSOLE_CACHE", str(tmp_path))
    architecture, weights, source = loaded(write_tiny_gguf(tmp_path / "tiny.gguf", hidden=128))
    right = KernelLlama.__call__

    def wrong(*args: object) -> torch.Tensor:
        return right(*args).roll(1, dims=1)  # type: ignore[arg-type]

    monkeypatch.setattr(KernelLlama, "__call__", wrong)
    assert choose.kernel_model(architecture, weights, source, 16, no_progress) is None  # type: ignore[arg-type]
    assert "failed their check" in caplog.text


@pytest.mark.apart
def test_decodes_of_every_head_size_and_short_context() -> None:
    """In processes that load what others compiled: linked into one function and optimised once more, it is
    other machine code, and once was wrong. One process for each instruction set, at the same time."""
    with ThreadPoolExecutor(2) as both:
        for found in both.map(swept, kinds := sorted({SIMD, "avx2"})):
            assert found["simd"] in kinds
            kinds.remove(found["simd"])
            assert found["models"] >= 32
            assert found["worst"] < 1e-5
            assert found["differing"] == 0
    assert not kinds


def swept(simd: str) -> dict[str, Any]:
    if simd != SIMD:
        sweep(simd, "--first")
    return sweep(simd)


def sweep(simd: str, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, SWEEP, *options],
        env={**os.environ, "INFER_ENGINE_SIMD": simd},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return json.loads(done.stdout)


def test_an_instruction_set_that_does_not_exist_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import infer_engine.model.kernels.simd"],
        env={**os.environ, "INFER_ENGINE_SIMD": "avx1024"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "'avx1024'; allowed: none, avx2" in done.stderr


def test_kernels_are_compiled_for_one_process_where_they_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("no directory")
    try:
        compiled.use_cache()
        assert "cannot be kept" in caplog.text

        def one_more(x: int) -> int:
            return x + 1

        function = jit.compiled(one_more)
        assert function(1) == 2
        assert type(function._cache).__name__ == "NullCache"  # type: ignore[attr-defined]
    finally:
        monkeypatch.undo()
        compiled.use_cache()


def test_of_two_that_compile_one_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    try:
        compiled.use_cache()
        waited = threading.Event()
        second = threading.Thread(target=_compile, args=(waited,))
        with compiled.one_compiles(lambda: None):
            second.start()
            assert waited.wait(60)
            assert second.is_alive()
        second.join(60)
        assert not second.is_alive()
    finally:
        monkeypatch.undo()
        compiled.use_cache()


def _compile(waited: threading.Event) -> None:
    with compiled.one_compiles(waited.set):
        pass


def test_a_fork_has_threads_of_its_own_and_a_closed_team_none() -> None:
    team = Team(2)
    before = threading.active_count()
    child = os.fork()
    if child == 0:  # pragma: no cover: its own process
        done: list[int] = []
        team.run(done.append)
        os._exit(0 if sorted(done) == [0, 1] else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    team.close()
    assert threading.active_count() == before - 1


def test_scratch_is_bounded_and_goes_with_the_model(tmp_path: Path) -> None:
    """A long context costs nothing but its parts: 2 + head_dim floats a head for each 256 tokens."""
    pair = Pair(write_tiny_gguf(tmp_path / "tiny.gguf", hidden=128), threads=2)
    with torch.inference_mode():
        model, pool = pair.kernels, pair.pools[1]
        table = list(range(96))
        model(torch.ones(1, dtype=torch.int64), torch.tensor([0]), [Span(0, 1, table)], pool, [0])
        short_bytes = model.scratch_bytes
        model(torch.ones(1, dtype=torch.int64), torch.tensor([1500]), [Span(1500, 1, table)], pool, [0])
        assert 0 < model.scratch_bytes - short_bytes <= 5 * 4 * (2 + 32) * 4
        model(torch.ones(64, dtype=torch.int64), torch.arange(64), [Span(0, 64, table)], pool, [])
        # x, qkv, row, hidden, shorts, scales and the tiles of two threads, for each of 64 rows.
        row_bytes = 4 * (128 + 256 + 128 + 128) + 2 * 128 + 4 * 8 + 2 * 4 * 2 * PANEL
        assert model.scratch_bytes - short_bytes <= 64 * row_bytes + 5 * 4 * (2 + 32) * 4
        kept = weakref.ref(model)
        threads = threading.active_count()
        del model, pair.kernels
        assert kept() is None
        assert threading.active_count() == threads - 1
