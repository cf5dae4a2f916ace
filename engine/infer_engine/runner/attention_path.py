"""Which attention a device gets: candidates in order of preference, each checked before it is taken."""

from dataclasses import dataclass, replace

import torch

from infer_engine.model.architecture import Architecture
from infer_engine.model.attention.choose import Candidate, Choice, Unsuitable, choose
from infer_engine.model.attention.packed import PagedKernel
from infer_engine.model.attention.paged import Scratch
from infer_engine.model.attention.pool import Layout
from infer_engine.model.attention.problems import TOLERANCES, Shapes, gather_path, kernel_path, worst_error


@dataclass(slots=True, frozen=True)
class AttentionPath:
    """``kernel`` None: gather."""

    kernel: PagedKernel | None
    layout: Layout


def choose_attention(shapes: Shapes) -> Choice[AttentionPath] | None:
    """The first of Triton, varlen and gather that computes small problems of these shapes right on this
    device (``shapes.layout`` is the candidate's own choice); None when none does."""
    return choose(candidates(shapes), lambda path: path_error(path, shapes), TOLERANCES[shapes.dtype])


def candidates(shapes: Shapes) -> list[Candidate[AttentionPath]]:
    """Every path there is, the preferred first."""
    return [
        Candidate("triton", lambda: _triton(shapes)),
        Candidate("varlen", lambda: _varlen(shapes)),
        Candidate("gather", lambda: AttentionPath(None, "heads")),
    ]


def path_error(path: AttentionPath, shapes: Shapes) -> float:
    """See ``problems.worst_error``."""
    shapes = replace(shapes, layout=path.layout)
    if path.kernel is not None:
        return worst_error(kernel_path(path.kernel), shapes)
    return worst_error(gather_path(Scratch(shapes.dtype, shapes.device), shapes.dtype), shapes)


def _triton(shapes: Shapes) -> AttentionPath:
    if shapes.device.type != "cuda":
        raise Unsuitable("it needs a GPU")
    _within(shapes.architecture, 256)
    from infer_engine.model.attention.triton_paged import TritonKernel

    return AttentionPath(TritonKernel(), "pages")


def _varlen(shapes: Shapes) -> AttentionPath:
    from infer_engine.model.attention import varlen

    capability = torch.cuda.get_device_capability(shapes.device) if shapes.device.type == "cuda" else None
    refusal = varlen.refusal(shapes.dtype, shapes.block_size, shapes.architecture.head_dim, capability)
    if refusal is not None:
        raise Unsuitable(refusal)
    return AttentionPath(varlen.VarlenKernel(), "pages")


def _within(architecture: Architecture, most_head_dim: int) -> None:
    if architecture.head_dim > most_head_dim:
        raise Unsuitable(f"it takes head dimensions up to {most_head_dim} (given: {architecture.head_dim})")
