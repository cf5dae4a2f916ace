"""What a GPU machine has to show before it serves: every attention path against float64, models against fp32
and against transformers, replayed against launched steps; and how far decode and prefill are from what the
hardware could do. Prints a table, writes JSON, and exits with 1 where something computes wrongly.

python bench/gpu_check.py                     everything; some minutes
python bench/gpu_check.py --self-test         the same on the CPU in small, through the GPU code's twins
"""

import argparse
import gc
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from gpu_report import Report
from gpu_speed import measure_decode, measure_prefill
from gpu_subjects import (
    TWIN,
    Scale,
    full_scale,
    make_architecture,
    make_request,
    small_scale,
    synthetic_runner,
)
from infer_engine.core.plan import Chunk, Plan
from infer_engine.core.request import Request
from infer_engine.model.attention.choose import Unsuitable
from infer_engine.model.attention.problems import TOLERANCES, Shapes
from infer_engine.model.linear import COMPUTE_DTYPES
from infer_engine.runner.attention_path import AttentionPath, candidates, path_error
from infer_engine.runner.forward import KernelForward
from infer_engine.runner.load import load_runner
from infer_engine.runner.torch_runner import TorchRunner
from infer_engine.settings import DEFAULT_MODEL, ReplicaSettings

ROOT = Path(__file__).parents[1]
EXPECTED_IDS = ROOT / "tests/model/expected_ids.json"
#: Two logits this close may change places with the order of summation (fp32).
TIE = 1e-3


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--self-test", action="store_true", help="small, on the CPU")
    parser.add_argument("--out", type=Path, help="JSON file; unset: $OUT or bench/results, gpu_check.json")
    parser.add_argument("--no-default-model", action="store_true", help="leave the default model out")
    options = parser.parse_args()
    if not options.self_test and not torch.cuda.is_available():
        print("torch finds no CUDA GPU here; --self-test runs this script on the CPU", file=sys.stderr)
        return 2
    if options.self_test:
        torch.set_num_threads(1)  # so small that threads would only wait for each other
    scale = small_scale() if options.self_test else full_scale()
    scale.default_model &= not options.no_default_model
    report = Report()
    with torch.inference_mode():
        for part in (check_attention, check_default_model, check_and_measure_synthetic):
            try:
                part(scale, report)
            except Exception as error:  # noqa: BLE001 - it is reported, and must not hide what the others find
                report.add(part.__name__, f"{type(error).__name__}: {error}", "", met=False)
    out = options.out or Path(os.environ.get("OUT", ROOT / "bench/results")) / "gpu_check.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    document = {"version": 1, "machine": _machine(scale.device), "results": report.results}
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"written to {out}; " + (f"FAILED: {', '.join(report.failed)}" if report.failed else "all right"))
    return 1 if report.failed else 0


def check_attention(scale: Scale, report: Report) -> None:
    for heads, kv_heads, head_dim in scale.shapes:
        architecture = make_architecture(
            "shapes", layers=2, heads=heads, kv_heads=kv_heads, head_dim=head_dim
        )
        for kind in scale.kinds:
            for block_size in scale.block_sizes:
                dtype = COMPUTE_DTYPES[kind]
                shapes = Shapes(architecture, block_size, dtype, scale.device, "pages")
                for name, path in _paths(shapes):
                    label = f"attention {name} {kind} {heads}/{kv_heads}x{head_dim} page {block_size}"
                    if isinstance(path, str):
                        report.add(label, path, "")
                        continue
                    error = path_error(path, shapes)
                    tolerance = TOLERANCES[dtype]
                    report.add(
                        label,
                        error,
                        "relative error",
                        against="float64",
                        wanted=f"<= {tolerance:g}",
                        met=error <= tolerance,
                    )


def _paths(shapes: Shapes) -> Iterator[tuple[str, AttentionPath | str]]:
    """Every path by name, or why it is not there."""
    for candidate in candidates(shapes):
        try:
            yield candidate.name, candidate.make()
        except (Unsuitable, ImportError) as reason:
            yield candidate.name, f"not used: {reason}"
    yield "twin", TWIN


def check_default_model(scale: Scale, report: Report) -> None:
    """Greedy output of the default model: in fp32 against transformers, and in 16 bits against that."""
    if not scale.default_model:
        report.add("default model", "left out", "")
        return
    cases = json.loads(EXPECTED_IDS.read_text(encoding="utf-8"))["cases"]
    device: Any = scale.device.type
    for dtype in ("fp32", "bf16", "fp16"):
        running = max(len(cases), *scale.batches)
        settings = ReplicaSettings(
            model=DEFAULT_MODEL,
            dtype=dtype,
            device=device,
            max_running=running,
            kv_blocks=running * -(-max(scale.context + 1, 512) // 16),
            preempt_mode="recompute",
        )
        runner: Any = load_runner(settings, lambda _fraction, _what: None)
        outputs = _generate(runner, [case["prompt"] for case in cases], scale.generated)
        same, untied = 0, 0
        for output, case in zip(outputs, cases, strict=True):
            expected = case["expected"][: scale.generated]
            first = next((n for n, token in enumerate(expected) if output[n] != token), None)
            same += first is None
            untied += first is not None and case["gaps"][first] >= TIE
        report.add(
            f"default model {dtype}",
            f"{same} of {len(cases)} prompts",
            f"the same {scale.generated} tokens",
            against="transformers fp32",
            wanted="all but ties" if dtype == "fp32" else None,
            met=untied == 0 if dtype == "fp32" else None,
        )
        _check_graphs(f"default model {dtype}", runner, scale, report)
        if dtype != "fp32":
            measure_decode(f"default model {dtype}", runner, scale, report)
        _close(runner)


def _check_graphs(name: str, runner: TorchRunner, scale: Scale, report: Report) -> None:
    """Replayed decodes generate what launched ones do; sizes are padded and not."""
    forward = runner.forward
    if not isinstance(forward, KernelForward) or forward.graphs is None:
        report.add(f"{name} graphs", "none", "", met=None)
        return
    graphs, vocabulary = forward.graphs, runner.info.vocab_size
    for count in (1, 3, 8):
        prompts = [[(17 * n + 5 * m) % vocabulary for n in range(9 + 7 * m)] for m in range(count)]
        before = graphs.replays
        replayed = _generate(runner, prompts, scale.generated)
        used = graphs.replays - before
        forward.graphs = None
        launched = _generate(runner, prompts, scale.generated)
        forward.graphs = graphs
        same = sum(a == b for a, b in zip(replayed, launched, strict=True))
        # Where padding changes the batch's shape, 16-bit sums may differ: then only most must agree.
        exact = count in (1, 8) or runner.info.dtype == "fp32"
        report.add(
            f"{name} graphs, {count} sequences",
            f"{same} of {count}",
            f"the same {scale.generated} tokens, {used} replays",
            against="launched steps",
            wanted="all" if exact else None,
            met=(same == count or not exact) and used >= scale.generated - 1,
        )


def check_and_measure_synthetic(scale: Scale, report: Report) -> None:
    """Random weights of a real model's shapes: 16 bits against fp32 where both fit, then speed."""
    architecture = scale.synthetic
    small = make_architecture("small", layers=2, heads=4, kv_heads=2, head_dim=64)
    exact = synthetic_runner(small, "fp32", scale, 8)
    prompts = [[(7 * n + m) % small.vocab_size for n in range(20)] for m in range(8)]
    expected = _generate(exact, prompts, scale.generated)
    _check_graphs("small synthetic fp32", exact, scale, report)
    exact.close()
    for kind in scale.kinds[1:]:
        runner = synthetic_runner(small, kind, scale, 8)
        outputs = _generate(runner, prompts, scale.generated)
        agreed = sum(_common(a, b) for a, b in zip(outputs, expected, strict=True))
        report.add(
            f"small synthetic {kind}",
            agreed / (len(prompts) * scale.generated),
            "of the tokens before the first difference",
            against="fp32",
        )
        _close(runner)
    kind = scale.kinds[1]
    runner = synthetic_runner(architecture, kind, scale, max(scale.batches))
    measure_decode(f"{architecture.name} {kind}", runner, scale, report)
    measure_prefill(f"{architecture.name} {kind}", architecture, runner, scale, report)
    _close(runner)


def _common(a: list[int], b: list[int]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def _generate(runner: TorchRunner, prompts: Sequence[list[int]], count: int) -> list[list[int]]:
    """``count`` greedy tokens of each prompt, all in one batch."""
    size, requests, first = runner.info.block_size, list[Request](), 0
    for name, prompt in enumerate(prompts):
        blocks = -(-(len(prompt) + count) // size)
        requests.append(make_request(name, list(prompt), first, blocks))
        first += blocks
    chunks = [Chunk(request, 0, len(request.prompt), True) for request in requests]
    for step in range(count):
        tokens = _tokens(runner.execute(Plan(step=step, chunks=chunks)))
        for request in requests:
            request.output.append(tokens[request.id])
        chunks = [Chunk(request, request.total_tokens - 1, 1, True) for request in requests]
    return [request.output for request in requests]


def _tokens(output: Any) -> dict[str, int]:
    return getattr(output, "tokens", output)


def _close(runner: TorchRunner) -> None:
    """Graphs and the forward pass refer to each other: the next model needs their memory now."""
    runner.close()
    gc.collect()


def _machine(device: torch.device) -> dict[str, Any]:
    machine: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpus": os.cpu_count(),
        "gpu": None,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        machine |= {
            "gpu": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "gpu_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
        }
    return machine


if __name__ == "__main__":
    sys.exit(main())
