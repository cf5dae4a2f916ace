# ruff: noqa: E402
"""Compiles the Triton kernels for real GPUs, without one, and prints as JSON how much shared memory each
needs and how much of its registers it spills to memory, both in bytes.

A process of its own, with a cache of its own in the directory it is given: what another run left there would
not be compiled, and nothing would be checked.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
os.environ["TRITON_CACHE_DIR"] = str(FOLDER)
os.environ.pop("TRITON_INTERPRET", None)

import triton
from infer_engine.model.attention import triton_paged
from infer_engine.model.attention.triton_paged import CHUNK_ROWS, FEWEST_ROWS, PART_TOKENS, launch_constants
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

#: Name: compute capability, dtype and its bytes, query heads per KV head, head dimension, rows, part.
CASES = {
    "decode in parts, bf16, Llama 8B, H100": (90, "bf16", 2, 4, 128, FEWEST_ROWS, PART_TOKENS),
    "chunk, bf16, Llama 8B, A100": (80, "bf16", 2, 4, 128, CHUNK_ROWS, 0),
}
#: The same in more places; compiling them takes longer than a suite should.
MORE_CASES = {
    "decode, fp16, head dimension 80, T4": (75, "fp16", 2, 4, 80, FEWEST_ROWS, 0),
    "chunk, bf16, three heads, A10": (86, "bf16", 2, 3, 64, CHUNK_ROWS, 0),
    "chunk, fp16, head dimension 256, H100": (90, "fp16", 2, 1, 256, CHUNK_ROWS, 0),
    "decode, fp32, H100": (90, "fp32", 4, 3, 64, FEWEST_ROWS, 0),
    "chunk, fp32, head dimension 128, A100": (80, "fp32", 4, 4, 128, CHUNK_ROWS, 0),
}
NOT_ALIGNED = {"tables", "query_starts", "lengths", "first_sequence", "table_width", "scale", "parts"}


def needs(function: Any, capability: int, types: dict[str, str], constants: dict[str, Any]) -> list[int]:
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages")}
    names = [parameter.name for parameter in function.params]
    signature = {name: "constexpr" if name in constants else types[name] for name in names}
    # As a launch finds it: strides and the starts of tensors are multiples of 16.
    aligned = [name for name in names if name not in constants and name not in NOT_ALIGNED]
    source = ASTSource(
        function,
        signature,
        {(names.index(name),): value for name, value in constants.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    kernel = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    assert kernel.asm["cubin"]
    ptx = FOLDER / "kernel.ptx"
    ptx.write_text(kernel.asm["ptx"])
    suffix = "a" if capability >= 90 else ""
    told = subprocess.run(
        [knobs.nvidia.ptxas.path, "-v", f"--gpu-name=sm_{capability}{suffix}", str(ptx), "-o", os.devnull],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    spilled = sum(int(number) for number in re.findall(r"(\d+) bytes spill stores", told))
    return [int(kernel.metadata.shared), spilled]


def main() -> None:
    cases = CASES | (MORE_CASES if "--more" in sys.argv else {})
    integers = "first_sequence heads table_width q_row q_head k_page k_slot k_head v_page v_slot v_head parts"
    types = dict.fromkeys(integers.split(), "i32")
    types |= {"scale": "fp32", "tables": "*i32", "query_starts": "*i32", "lengths": "*i32", "sums": "*fp32"}
    results: dict[str, list[int]] = {}
    for name, (capability, dtype, size, group, head_dim, rows, part) in cases.items():
        types |= dict.fromkeys(("queries", "keys", "values"), f"*{dtype}")
        types |= dict.fromkeys(("out", "tops"), "*fp32" if part else f"*{dtype}")
        constants = launch_constants(rows, group, head_dim, 16, size) | {"PART": part}
        results[name] = needs(triton_paged._attend, capability, types, constants)
    types |= {"out": "*bf16", "tops": "*fp32"}
    join = {"DIM": 128, "HEAD_DIM": 128, "num_warps": 1, "num_stages": 1}
    results["joining parts, bf16, H100"] = needs(triton_paged._join, 90, types, join)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
