"""Runs the Triton kernel in Triton's interpreter on the CPU, and prints its errors as JSON.

A process of its own: the interpreter is chosen by the environment before triton is imported. It multiplies
bf16 matrices wrongly (their bits, as integers), so bf16 is not among the cases.
"""

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
from infer_engine.model.architecture import Architecture
from infer_engine.model.attention import triton_paged
from infer_engine.model.attention.pool import Layout
from infer_engine.model.attention.problems import TOLERANCES, Shapes, kernel_path, worst_error
from infer_engine.model.attention.triton_paged import TritonKernel

#: Name: heads, KV heads, head dim, page, dtype, layout, tokens in a part, problems of (start, count).
CASES: dict[str, tuple[int, int, int, int, torch.dtype, Layout, int, list[list[tuple[int, int]]]]] = {
    "decodes at the borders of pages and tiles": (
        6, 2, 64, 16, torch.float32, "pages", 512,
        [[(0, 1), (15, 1), (16, 1), (63, 1), (64, 1)], [(0, 1)]],
    ),
    "decodes in parts": (
        6, 2, 64, 16, torch.float32, "pages", 32,
        [[(130, 1), (31, 1), (32, 1), (0, 1), (95, 1)]],
    ),
    "chunks of several tiles": (6, 2, 64, 16, torch.float32, "pages", 512, [[(0, 45), (77, 30), (5, 2)]]),
    "decodes in parts beside chunks": (
        6, 2, 64, 16, torch.float32, "pages", 32,
        [[(40, 1), (100, 1), (0, 25), (33, 40), (1, 1)]],
    ),
    "one query head per KV head, heads outside the block": (
        2, 2, 64, 16, torch.float32, "heads", 32,
        [[(70, 1), (3, 30)]],
    ),
    "head dimension 80": (4, 2, 80, 32, torch.float32, "pages", 32, [[(70, 1), (3, 30)]]),
    "head dimension 96": (4, 1, 96, 64, torch.float32, "heads", 512, [[(70, 1), (3, 30)]]),
    "head dimension 128, fp16": (4, 2, 128, 16, torch.float16, "pages", 32, [[(70, 1), (3, 30)]]),
    "head dimension 256": (2, 1, 256, 256, torch.float32, "pages", 512, [[(70, 1), (3, 20)]]),
    "pages of one token": (4, 2, 64, 1, torch.float32, "pages", 32, [[(70, 1), (3, 30)]]),
    "twenty query heads per KV head": (20, 1, 64, 16, torch.float32, "pages", 32, [[(40, 1), (0, 9)]]),
}  # fmt: skip


def main() -> None:
    results: dict[str, tuple[float, float]] = {}
    for name, (heads, kv_heads, head_dim, page, dtype, layout, part, problems) in CASES.items():
        triton_paged.PART_TOKENS = part
        architecture = Architecture(
            name=name, layers=1, hidden=heads * head_dim, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
            feed_forward=8, vocab_size=8, context_length=1024, rope_base=1e4, norm_epsilon=1e-5, tied=True,
        )  # fmt: skip
        shapes = Shapes(architecture, page, dtype, torch.device("cpu"), layout)
        error = worst_error(kernel_path(TritonKernel()), shapes, [tuple(spans) for spans in problems])
        results[name] = error, TOLERANCES[dtype]
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
