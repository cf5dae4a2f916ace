"""How far steps of a runner are from what the hardware could do."""

import statistics
import time
from collections.abc import Callable

import torch
from gpu_report import Report
from gpu_subjects import Scale, make_request
from infer_engine.core.plan import Chunk, Plan
from infer_engine.model.architecture import Architecture
from infer_engine.model.linear import COMPUTE_DTYPES
from infer_engine.runner.forward import KernelForward
from infer_engine.runner.torch_runner import TorchRunner


def measure_decode(name: str, runner: TorchRunner, scale: Scale, report: Report) -> None:
    """Steps of the runner alone, host time included, against reading weights and KV once."""
    bandwidth = _bandwidth(scale)
    report.add("copy bandwidth", bandwidth, "bytes/s, read and written")
    info, size = runner.info, runner.info.block_size
    blocks_each = -(-(scale.context + 1) // size)
    graphs = getattr(runner.forward, "graphs", None)
    for batch in scale.batches:
        if batch * blocks_each > info.kv_blocks:
            report.add(f"{name} decode, batch {batch}", None, "s", against="the pool is too small")
            continue
        # What the context holds does not matter for the time: it is never computed.
        prompt = [5] * (scale.context + 1)
        requests = [make_request(n, prompt, n * blocks_each, blocks_each) for n in range(batch)]
        plan = Plan(step=1, chunks=[Chunk(request, scale.context, 1, True) for request in requests])
        kv_bytes = batch * (scale.context + 1) * info.kv_bytes_per_token
        floor_s = (info.weight_bytes + kv_bytes) / bandwidth
        for label, used in (("replayed", graphs), ("launched", None)):
            if isinstance(runner.forward, KernelForward):
                runner.forward.graphs = used
            elif label == "replayed":
                continue
            step_s = _median_s(lambda plan=plan: runner.execute(plan), scale)
            report.add(
                f"{name} decode {label}, batch {batch}, context {scale.context}",
                step_s,
                f"s, {batch / step_s:.0f} tokens/s",
                against=f"the bandwidth floor of {floor_s:.3g} s",
                ratio=step_s / floor_s,
            )
        if isinstance(runner.forward, KernelForward):
            runner.forward.graphs = graphs


def measure_prefill(
    name: str, architecture: Architecture, runner: TorchRunner, scale: Scale, report: Report
) -> None:
    rate = _matrix_rate(scale)
    report.add("matrix rate", rate, "FLOP/s")
    a, size = architecture, runner.info.block_size
    matrices = a.layers * a.hidden * (2 * (a.heads + a.kv_heads) * a.head_dim + 3 * a.feed_forward)
    for count in scale.prefills:
        flops = 2 * matrices * count + 2 * a.layers * a.heads * a.head_dim * count * count
        request = make_request(0, [(3 * n) % a.vocab_size for n in range(count)], 0, -(-count // size))
        plan = Plan(step=1, chunks=[Chunk(request, 0, count, True)])
        step_s = _median_s(lambda plan=plan: runner.execute(plan), scale)
        report.add(
            f"{name} prefill of {count}",
            step_s,
            f"s, {count / step_s:.0f} tokens/s",
            against=f"the matrix rate's {flops / rate:.3g} s",
            ratio=step_s * rate / flops,
        )


def _bandwidth(scale: Scale) -> float:
    source = torch.zeros(scale.copied_bytes, dtype=torch.uint8, device=scale.device)
    target = torch.empty_like(source)
    return 2 * scale.copied_bytes / _median_s(lambda: target.copy_(source), scale)


def _matrix_rate(scale: Scale) -> float:
    side = scale.matrix
    dtype = COMPUTE_DTYPES[scale.kinds[1]]
    left = torch.randn(side, side, device=scale.device).to(dtype)
    return 2 * side**3 / _median_s(lambda: left @ left, scale)


def _median_s(run: Callable[[], object], scale: Scale) -> float:
    """Seconds of one call, the device's work included; the first calls do not count."""

    def once() -> float:
        began_s = time.perf_counter()
        run()
        if scale.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began_s

    for _ in range(2):
        once()
    return statistics.median(once() for _ in range(scale.repeats))
