"""Padded decode steps on static buffers: which are replayed, what the buffers hold, what padding touches."""

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from infer_engine.model.attention.packed import PackedStep, StepTensors
from infer_engine.model.attention.paged import Span
from infer_engine.model.attention.pool import KvPool
from infer_engine.runner import decode_graphs
from infer_engine.runner.decode_graphs import DecodeGraphs, batch_sizes, call_each_time
from infer_engine.runner.staging import Staging
from support.shapes import CPU, make_architecture

SIZE, BLOCKS, VOCAB = 4, 40, 7
ARCHITECTURE = make_architecture(heads=4, kv_heads=2, head_dim=8, vocab_size=VOCAB)


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def make_pool(spare_blocks: int = 1) -> KvPool:
    return KvPool(ARCHITECTURE, BLOCKS, SIZE, torch.float32, CPU, layout="pages", spare_blocks=spare_blocks)


class Recorder:
    """A forward pass that keeps what it was given; its logits are the tokens."""

    def __init__(self) -> None:
        self.seen: list[StepTensors] = []

    def __call__(self, step: StepTensors) -> torch.Tensor:
        self.seen.append(step)
        return step.tokens[:, None].float().expand(-1, VOCAB)


def make_graphs(recorder: Callable[[StepTensors], torch.Tensor], context_length: int = 64) -> DecodeGraphs:
    return DecodeGraphs(
        recorder,
        make_pool(),
        sizes=batch_sizes(8),
        context_length=context_length,
        vocab_size=VOCAB,
        capture=call_each_time,
    )


def decodes(starts: list[int]) -> PackedStep:
    """One token each of sequences that have ``starts`` tokens before it."""
    rng = random.Random(len(starts))
    spans = [Span(start, 1, rng.sample(range(BLOCKS), start // SIZE + 1)) for start in starts]
    return PackedStep([100 + n for n in range(len(starts))], list(range(len(starts))), spans)


def test_sizes_double_up_to_what_runs_at_most() -> None:
    assert batch_sizes(1) == [1]
    assert batch_sizes(32) == [1, 2, 4, 8, 16, 32]
    assert batch_sizes(33) == [1, 2, 4, 8, 16, 32, 64]
    assert batch_sizes(4096)[-1] == decode_graphs.LARGEST_BATCH


def test_the_largest_is_captured_first() -> None:
    captured: list[int] = []

    def compute(step: StepTensors) -> torch.Tensor:
        captured.append(len(step.tokens))
        # Whatever is captured must be harmless to run: padding alone.
        assert step.spans.lengths.tolist() == [1] * len(step.tokens)
        assert step.spans.slots.tolist() == [BLOCKS * SIZE] * len(step.tokens)
        assert (step.spans.tables[:, 0] == BLOCKS).all()
        return torch.zeros(len(step.tokens), VOCAB)

    def capture(run: Callable[[], None]) -> Callable[[], None]:
        run()
        return run

    DecodeGraphs(
        compute, make_pool(), sizes=[1, 2, 4, 8], context_length=64, vocab_size=VOCAB, capture=capture
    )
    assert captured == [8, 4, 2, 1]


@pytest.mark.parametrize("count", range(1, 9))
def test_buffers_hold_the_step_and_then_padding(count: int) -> None:
    recorder = Recorder()
    graphs = make_graphs(recorder)
    # Longer contexts first, so that what they leave in the buffers would show.
    graphs.replay(decodes([63] * 8))
    step = decodes([(5 * n) % 30 for n in range(count)])
    logits = graphs.replay(step)
    assert logits is not None
    assert logits[:, 0].tolist() == step.tokens
    tensors, size = recorder.seen[-1], len(recorder.seen[-1].tokens)
    assert (size >= count, size // 2 < count) == (True, True)
    pads = size - count
    starts = [span.start for span in step.spans]
    assert tensors.tokens.tolist() == step.tokens + [0] * pads
    assert tensors.positions.tolist() == starts + [0] * pads
    assert tensors.logit_rows.tolist() == list(range(size))
    spans = tensors.spans
    assert spans.slots.tolist() == [
        *(span.table[span.start // SIZE] * SIZE + span.start % SIZE for span in step.spans),
        *[BLOCKS * SIZE] * pads,
    ]
    lengths = [start + 1 for start in starts] + [1] * pads
    assert spans.lengths.tolist() == lengths
    assert spans.query_starts.tolist() == list(range(size + 1))
    assert spans.context_starts.tolist() == [sum(lengths[:n]) for n in range(size + 1)]
    assert (spans.singles, spans.longest_span, spans.longest_context) == (size, 1, 64)
    tables = [span.table for span in step.spans] + [[BLOCKS]] * pads
    assert spans.tables.tolist() == [table + [0] * (16 - len(table)) for table in tables]
    # All that changes from step to step is one tensor: one copy.
    own = [tensors.tokens, tensors.positions, spans.slots, spans.lengths, spans.context_starts, spans.tables]
    assert len({part.untyped_storage().data_ptr() for part in own}) == 1


def test_addresses_never_change() -> None:
    recorder = Recorder()
    graphs = make_graphs(recorder)
    for count in (3, 8, 1, 4, 3):
        graphs.replay(decodes([count] * count))
    first, last = recorder.seen[0], recorder.seen[-1]
    assert first is last
    assert graphs.replays == 5


def test_steps_that_do_not_fit_are_left_alone() -> None:
    recorder = Recorder()
    graphs = make_graphs(recorder)
    table = list(range(16))
    not_sampling = decodes([3, 4])
    for step in (
        PackedStep([1, 2, 3], [0, 2], [Span(9, 1, table), Span(0, 2, table)]),  # one prefills
        PackedStep([1, 2], [1], [Span(0, 2, table)]),
        PackedStep(not_sampling.tokens, [0], not_sampling.spans),
        decodes([5] * 9),  # more than the largest
        decodes([5, 64]),  # longer than the context
    ):
        assert graphs.replay(step) is None
    assert (recorder.seen, graphs.replays) == ([], 0)
    assert graphs.replay(decodes([5, 63])) is not None


def test_large_batches_are_for_short_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_graphs, "MOST_TABLE_TOKENS", 128)
    recorder = Recorder()
    graphs = make_graphs(recorder)
    assert graphs.replay(decodes([15] * 8)) is not None
    assert graphs.replay(decodes([16] * 8)) is None
    assert graphs.replay(decodes([63] * 2)) is not None
    assert [len(step.tokens) for step in recorder.seen] == [8, 2]


def test_a_pool_without_a_spare_block_is_refused() -> None:
    with pytest.raises(ValueError, match="spare block"):
        DecodeGraphs(
            Recorder(), make_pool(0), sizes=[1], context_length=64, vocab_size=VOCAB, capture=call_each_time
        )


def test_staging_grows_and_forgets() -> None:
    staging = Staging(CPU)
    assert staging.bring([1, 2, 3]).tolist() == [1, 2, 3]
    assert staging.take(2).tolist() == [0, 0]
    many = list(range(10_000))
    there = staging.bring(many)
    assert there.dtype == torch.int32
    staging.take(10_000)
    # What was brought is a copy: the next step's numbers cannot change it.
    assert there.tolist() == many
