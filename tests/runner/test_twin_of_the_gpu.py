"""The way steps are run on a GPU, on the CPU and a real model: what it generates is what the ordinary way
does, whatever happens between two replays (fp32)."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from infer_engine.core.blocks import BlockPool
from infer_engine.core.plan import Chunk, Plan
from infer_engine.core.request import Request
from infer_engine.core.swap import HostPool
from infer_engine.model.errors import MemoryShort
from infer_engine.model.llama import Llama
from infer_engine.model.sampling import Sampling
from infer_engine.runner.decode_graphs import DecodeGraphs
from infer_engine.runner.forward import GatherForward, KernelForward
from infer_engine.runner.gpu import make_forward, make_forward_by
from infer_engine.runner.runner import Runner
from infer_engine.runner.workspace import largest_step, workspace_bytes
from infer_engine.settings import ReplicaSettings
from support.running import make_request, run_all
from support.twin import TWIN_PATH, ToldMeter, TwinGpu, TwinRunner, load_model

SAMPLED = Sampling(temperature=0.9, top_p=0.95, seed=11)


@pytest.fixture(scope="module")
def model(tiny_path: Path, tiny_cache: None) -> Llama:
    return load_model(tiny_path)


@pytest.fixture
def twin(model: Llama) -> Iterator[TwinRunner]:
    runner = TwinRunner(model, ReplicaSettings(kv_blocks=128, block_size=4, max_running=16, host_blocks=40))
    yield runner
    runner.close()


def batch_of(count: int) -> list[Request]:
    rng = random.Random(count)
    return [
        make_request(
            name, [rng.randrange(3, 250) for _ in range(1 + 7 * name % 40)], max_tokens=9, sampling=SAMPLED
        )
        for name in range(count)
    ]


def outputs(requests: list[Request]) -> list[list[int]]:
    assert all(len(request.output) == request.max_tokens for request in requests)
    return [request.output for request in requests]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 11, 16])
def test_replayed_decodes_generate_what_the_ordinary_way_does(
    count: int, runner: Runner, twin: TwinRunner
) -> None:
    ordinary, replayed = batch_of(count), batch_of(count)
    run_all(runner, ordinary)
    run_all(twin, replayed)
    assert outputs(replayed) == outputs(ordinary)
    assert twin.graphs.replays > 4


def test_preemption_and_swap_between_replays_change_nothing(runner: Runner, twin: TwinRunner) -> None:
    undisturbed, recomputed, swapped = batch_of(10), batch_of(10), batch_of(10)
    run_all(runner, undisturbed)
    run_all(twin, recomputed, kv_blocks=26)
    assert sum(request.preemptions for request in recomputed) > 0
    pool = BlockPool(26, 4, prefix_cache=True)
    counters = run_all(twin, swapped, pool=pool, host=HostPool(40, "swap")).counters
    assert min(counters.swaps, counters.swapped_in_blocks) > 1
    assert outputs(recomputed) == outputs(swapped) == outputs(undisturbed)


def test_copied_blocks_are_there_before_a_replay_reads_them(runner: Runner, twin: TwinRunner) -> None:
    prompt = [random.Random(2).randrange(3, 250) for _ in range(30)]
    cold, warm = (
        [make_request(cut, [*prompt[:cut], 7], max_tokens=8) for cut in range(20, 30)] for _ in "ab"
    )
    for request in cold:
        run_all(runner, [request])
    pool = BlockPool(128, 4, prefix_cache=True)
    run_all(twin, [make_request("first", prompt)], pool=pool)
    copied = 0
    before = twin.graphs.replays
    for request in warm:
        copied += run_all(twin, [request], pool=pool).counters.copied_blocks
    assert outputs(warm) == outputs(cold)
    assert copied > 5
    # Only a prompt's one missing token was computed: even those steps were replayed, right after the copy.
    assert twin.graphs.replays - before == 8 * len(warm)


def test_padding_writes_to_nobodys_block(twin: TwinRunner) -> None:
    pool = twin.pool
    with torch.inference_mode():
        for layer in range(2):
            for pages in pool.pages(layer):
                pages.copy_(torch.arange(pages.numel()).view_as(pages))
    before = [torch.stack(pool.pages(layer)).clone() for layer in range(2)]
    requests = [make_request(n, [5, 6, 7]) for n in range(5)]
    for n, request in enumerate(requests):
        request.block_table = [10 + n]
    plan = Plan(step=1, chunks=[Chunk(request, 2, 1, samples=True) for request in requests])
    assert len(twin.execute(plan).tokens) == 5
    assert twin.graphs.replays == 1
    for layer in range(2):
        after = torch.stack(pool.pages(layer))
        changed = (after != before[layer]).flatten(3).any(-1).any(0).nonzero().tolist()
        # Token 2 of each, and what five of eight left to padding.
        assert changed == [*([10 + n, 2] for n in range(5)), [pool.blocks, 0]]


def test_a_long_prompt_in_chunks_beside_decodes_takes_the_other_way(runner: Runner, twin: TwinRunner) -> None:
    prompt = [random.Random(5).randrange(3, 250) for _ in range(150)]
    ordinary, mixed = ([*batch_of(3), make_request("long", prompt, max_tokens=9)] for _ in "ab")
    run_all(runner, ordinary, token_budget=16)
    run_all(twin, mixed, token_budget=16)
    assert outputs(mixed) == outputs(ordinary)


def test_a_failed_capture_costs_only_the_graphs(model: Llama, caplog: pytest.LogCaptureFixture) -> None:
    def fail(run: object) -> object:
        raise RuntimeError("operation not permitted when stream is capturing")

    settings = ReplicaSettings(kv_blocks=8)
    with torch.inference_mode():
        _, forward = make_forward_by(TWIN_PATH, model, settings, TwinGpu(capture=fail))  # type: ignore[arg-type]
    assert isinstance(forward, KernelForward)
    assert forward.graphs is None
    assert "not captured into CUDA graphs: operation not permitted" in caplog.text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_check_at_start_ends_at_gathering_here(model: Llama) -> None:
    with torch.inference_mode():
        pool, forward = make_forward(model, ReplicaSettings(kv_blocks=8), TwinGpu())
    assert isinstance(forward, GatherForward)
    assert (pool.layout, pool.spare_blocks, pool.blocks) == ("heads", 0, 8)


def test_what_computing_takes_is_set_aside_before_the_pool_is_sized(model: Llama) -> None:
    # 2 layers x 2 x 2 heads x 16 x 4 bytes x 16 tokens
    block_bytes, settings = 8192, ReplicaSettings(max_running=4, preempt_mode="recompute")

    def blocks(free: int, workspace: int, *, graphs: bool, asked: int | None = None) -> int:
        gpu = TwinGpu(free=free, workspace=workspace)
        if not graphs:
            gpu.capture = None
        wanted = ReplicaSettings(max_running=4, preempt_mode="recompute", kv_blocks=asked)
        with torch.inference_mode():
            pool, forward = make_forward_by(TWIN_PATH, model, wanted, gpu)
        assert gpu.meter.resets == 1
        assert isinstance(getattr(forward, "graphs", None), DecodeGraphs) == graphs
        return pool.blocks

    free = 1000 * block_bytes
    assert settings.starting_token_budget("cpu") == 128
    assert blocks(free, 0, graphs=False) == 900
    # 100 blocks and the slack of a quarter: 125.
    assert blocks(free, 100 * block_bytes, graphs=False) == int(875 * 0.9)
    # The same again for the graphs, and 4 rows of logits.
    logits = 4 * 4 * 269
    left = 1000 - 1.25 * (200 + logits / block_bytes)
    assert blocks(free, 100 * block_bytes, graphs=True) == int(int(left) * 0.9)
    assert blocks(free, 100 * block_bytes, graphs=False, asked=875) == 875
    with pytest.raises(MemoryShort, match="876 KV blocks need"):
        blocks(free, 100 * block_bytes, graphs=False, asked=876)
    with pytest.raises(MemoryShort, match="this replica's part of the available memory is 0 bytes"):
        blocks(free, 1000 * block_bytes, graphs=False)


@pytest.mark.parametrize(("running", "budget"), [(1, 1), (4, 4), (4, 50), (8, 3)])
def test_the_largest_step_is_as_large_as_the_limits_say(running: int, budget: int) -> None:
    step = largest_step(running, budget, 4)
    assert sum(span.count for span in step.spans) == len(step.tokens) == budget
    assert len(step.logit_rows) == len(step.spans) == min(running, budget)
    assert len(step.numbers(4)) > 0
    meter = ToldMeter(77)
    computed: list[object] = []

    def compute(one: object) -> torch.Tensor:
        computed.append(one)
        return torch.zeros(1)

    assert workspace_bytes(compute, step, meter) == 77
    assert computed == [step]
