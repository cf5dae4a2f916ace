"""Only an attention that computes right is taken, whatever else it does."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from infer_engine.model.attention.choose import Candidate, Unsuitable, choose
from infer_engine.model.attention.gather_kernel import GatherKernel
from infer_engine.model.attention.packed import PackedSpans
from infer_engine.model.attention.paged import Scratch
from infer_engine.model.attention.problems import TOLERANCES, Shapes, gather_path, kernel_path, worst_error
from infer_engine.runner.attention_path import choose_attention
from support.shapes import CPU, make_architecture

SHAPES = Shapes(make_architecture(heads=6, kv_heads=2, head_dim=16), 16, torch.float32, CPU, "pages")

Change = Callable[[torch.Tensor, torch.Tensor, PackedSpans], None]


class Spoiled(GatherKernel):
    """Right, and then changed."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def __call__(self, out, queries, keys, values, spans) -> None:
        super().__call__(out, queries, keys, values, spans)
        self._change(out, queries, spans)


def one_nan(out: torch.Tensor, queries: torch.Tensor, spans: PackedSpans) -> None:
    out[-1, -1, -1] = torch.nan


def rows_of_others(out: torch.Tensor, queries: torch.Tensor, spans: PackedSpans) -> None:
    out.copy_(out.roll(1, dims=0))


def heads_of_others(out: torch.Tensor, queries: torch.Tensor, spans: PackedSpans) -> None:
    out.copy_(out.roll(1, dims=1))


def slightly_off(out: torch.Tensor, queries: torch.Tensor, spans: PackedSpans) -> None:
    out *= 1.001


class ForgetsTheLastToken(GatherKernel):
    """The decode's own token is not in its context."""

    def __call__(self, out, queries, keys, values, spans) -> None:
        shorter = replace(spans, lengths=(spans.lengths - 1).clamp(min=1))
        super().__call__(out, queries, keys, values, shorter)


class ReadsAnyBlock(GatherKernel):
    """Its block tables are those of a neighbour."""

    def __call__(self, out, queries, keys, values, spans) -> None:
        super().__call__(out, queries, keys, values, replace(spans, tables=spans.tables.roll(1, 0)))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("layout", ["heads", "pages"])
def test_gathering_is_right_in_every_dtype_and_layout(dtype: torch.dtype, layout: str) -> None:
    shapes = replace(SHAPES, dtype=dtype, layout=layout)
    assert worst_error(gather_path(Scratch(dtype, CPU), dtype), shapes) <= TOLERANCES[dtype]
    assert worst_error(kernel_path(GatherKernel()), shapes) <= TOLERANCES[dtype]


@pytest.mark.parametrize(
    "kernel",
    [
        Spoiled(one_nan),
        Spoiled(rows_of_others),
        Spoiled(heads_of_others),
        Spoiled(slightly_off),
        ForgetsTheLastToken(),
        ReadsAnyBlock(),
    ],
    ids=["nan", "rows", "heads", "scale", "length", "tables"],
)
def test_what_is_wrong_is_refused_and_the_next_is_taken(
    kernel: GatherKernel, caplog: pytest.LogCaptureFixture
) -> None:
    choice = choose(
        [Candidate("wrong", lambda: kernel), Candidate("right", GatherKernel)],
        lambda made: worst_error(kernel_path(made), SHAPES),
        TOLERANCES[torch.float32],
    )
    assert choice is not None
    assert choice.name == "right"
    assert choice.refused["wrong"].startswith("its error is ")
    assert "wrong is not used: its error is " in caplog.text


def test_what_raises_or_is_missing_is_passed_over_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    def missing() -> int:
        import no_such_module  # noqa: F401  # pyright: ignore[reportMissingImports]

        return 1

    def unsuitable() -> int:
        raise Unsuitable("it needs a GPU")

    def error(made: int) -> float:
        if made == 2:
            raise KeyError("out of registers")
        return 0.0

    caplog.set_level(logging.INFO)
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        return number

    choice = choose(
        [
            Candidate("missing", missing),
            Candidate("unsuitable", unsuitable),
            Candidate("raising", lambda: make(2)),
            Candidate("good", lambda: make(3)),
            # Slow to import, say: it is not even made.
            Candidate("never", lambda: make(4)),
        ],
        error,
        0.0,
    )
    assert choice is not None
    assert (choice.name, choice.made, choice.error, made) == ("good", 3, 0.0, [2, 3])
    assert choice.refused == {
        "missing": "No module named 'no_such_module'",
        "unsuitable": "it needs a GPU",
        "raising": "KeyError: 'out of registers'",
    }
    levels = {record.getMessage().split()[0]: record.levelname for record in caplog.records}
    assert levels == {"missing": "INFO", "unsuitable": "INFO", "raising": "WARNING"}


def test_nothing_is_chosen_where_nothing_works() -> None:
    assert choose([Candidate("nan", lambda: 0)], lambda _made: float("nan"), 1e9) is None
    assert choose([], lambda _made: 0.0, 1.0) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_attention_gathers() -> None:
    choice = choose_attention(SHAPES)
    assert choice is not None
    assert (choice.name, choice.made.kernel, choice.made.layout) == ("gather", None, "heads")
    assert choice.refused["triton"] == "it needs a GPU"
    assert "compute capability 8.0" in choice.refused["varlen"]
