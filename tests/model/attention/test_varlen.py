"""What reaches torch's varlen attention. The kernel itself runs on CUDA alone: here only its arguments are
checked, against the signature that the installed torch has, and a stand-in computes."""

import inspect
import re
from typing import Any

import pytest
import torch
from infer_engine.model.attention import varlen
from infer_engine.model.attention.gather_kernel import GatherKernel
from infer_engine.model.attention.packed import PackedSpans
from infer_engine.model.attention.problems import Shapes, kernel_path, worst_error
from support.shapes import CPU, make_architecture
from torch.nn.attention import varlen as torch_varlen

SIGNATURE = inspect.signature(torch_varlen.varlen_attn_out)
SHAPES = Shapes(make_architecture(heads=6, kv_heads=2, head_dim=16), 256, torch.float32, CPU, "pages")


def stand_in(*positional: Any, **named: Any) -> None:
    """Checks what torch documents of each argument, then computes by gathering."""
    given = SIGNATURE.bind(*positional, **named).arguments
    query, key, table = given["query"], given["key"], given["block_table"]
    sequences = len(given["seqused_k"])
    assert given["out"].shape == query.shape
    assert given["out"].is_contiguous()
    assert query.stride(-1) == 1
    assert key.shape == given["value"].shape
    assert key.shape[1:] == (256, 2, 16)
    assert key.is_contiguous()
    assert given["value"].is_contiguous()
    for name, count in (("cu_seq_q", sequences + 1), ("cu_seq_k", sequences + 1), ("seqused_k", sequences)):
        assert given[name].dtype == torch.int32
        assert given[name].shape == (count,)
        assert given[name].is_contiguous()
    counts, lengths = given["cu_seq_q"].diff(), given["cu_seq_k"].diff()
    assert int(given["cu_seq_q"][-1]) == len(query)
    assert torch.equal(lengths, given["seqused_k"])
    assert (type(given["max_q"]), given["max_q"]) == (int, int(counts.max()))
    assert (type(given["max_k"]), given["max_k"]) == (int, int(lengths.max()))
    assert table.dtype == torch.int32
    assert table.is_contiguous()
    assert (table.shape[0], table.shape[1] * 256 >= given["max_k"]) == (sequences, True)
    assert given["window_size"] == (-1, 0)
    assert given["enable_gqa"] is True
    assert given["num_splits"] == 1
    assert "scale" not in given  # 1 / sqrt(head_dim) is its default
    singles = int((counts == 1).sum())
    spans = PackedSpans(
        slots=torch.empty(0),
        query_starts=given["cu_seq_q"],
        lengths=given["seqused_k"],
        context_starts=given["cu_seq_k"],
        tables=table,
        singles=singles,
        longest_span=given["max_q"],
        longest_context=given["max_k"],
    )
    GatherKernel()(given["out"], query, key, given["value"], spans)


def test_arguments_are_what_torch_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_varlen, "varlen_attn_out", stand_in)
    assert worst_error(kernel_path(varlen.VarlenKernel()), SHAPES) < 1e-4


@pytest.mark.parametrize(
    ("dtype", "block_size", "head_dim", "capability", "reason"),
    [
        (torch.bfloat16, 256, 64, (8, 0), None),
        (torch.float16, 512, 256, (9, 0), None),
        (torch.bfloat16, 256, 64, None, "no GPU"),
        (torch.bfloat16, 256, 64, (7, 5), r"8\.0 or newer .*7, 5"),
        (torch.float32, 256, 64, (9, 0), "float32"),
        (torch.bfloat16, 16, 64, (9, 0), "multiple of 256 tokens .given: 16"),
        (torch.bfloat16, 256, 60, (9, 0), "given: 60"),
        (torch.bfloat16, 256, 264, (9, 0), "given: 264"),
    ],
)
def test_what_it_does_not_take_is_said(
    dtype: torch.dtype, block_size: int, head_dim: int, capability: tuple[int, int] | None, reason: str | None
) -> None:
    refusal = varlen.refusal(dtype, block_size, head_dim, capability)
    assert (refusal is None) == (reason is None)
    assert reason is None or re.search(reason, str(refusal))
