"""Decodes of every short context with heads of every size, by the compiled kernels and by torch.

A program of its own: which instructions are used is settled as it starts, and a process that finds its
kernels compiled runs other machine code than the one that compiled them. Prints one JSON object. With --first
it stops after the first model, when everything is compiled.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from infer_engine.model.architecture import read_architecture
from infer_engine.model.attention.paged import PagedAttention, Scratch, Span, pack_order
from infer_engine.model.attention.pool import KvPool
from infer_engine.model.gguf_file import read_gguf
from infer_engine.model.kernels.compiled import use_cache
from infer_engine.model.llama import Llama
from infer_engine.model.store import no_progress
from infer_engine.model.weights import load_weights

CPU = torch.device("cpu")
#: KV heads, and queries that share one.
HEADS = ((1, 1), (1, 3), (2, 2), (3, 1))
#: The longest first, as a packed batch wants them.
CONTEXTS = range(40, 0, -1)
BLOCK_SIZE, BLOCKS_EACH = 16, 3
ALONE = (1, 2, 17, 40)


def main() -> None:
    torch.set_num_threads(1)  # small things, that two would wait for each other over
    use_cache()  # before anything is compiled
    from infer_engine.model.kernels.simd import SIMD, WIDTH
    from support.tiny_model import write_tiny_gguf

    worst, differing, cases = 0.0, 0, 0
    first = "--first" in sys.argv
    dims = range(-(-16 // WIDTH) * WIDTH, 17 if first else 129, WIDTH)
    with tempfile.TemporaryDirectory() as place, torch.inference_mode():
        # Converted weights are not for others, and to look through those of others takes longer.
        os.environ["INFER_CONSOLE_CACHE"] = place
        for head_dim in dims:
            for kv_heads, sharing in HEADS[:1] if first else HEADS:
                heads = kv_heads * sharing
                path = write_tiny_gguf(
                    Path(place) / "tiny.gguf",
                    layers=1,
                    hidden=heads * head_dim,
                    heads=heads,
                    kv_heads=kv_heads,
                    feed_forward=64,
                    tensor_type="F16",
                )
                error, different = compare(path)
                worst, differing, cases = max(worst, error), differing + different, cases + 1
    print(json.dumps({"simd": SIMD, "models": cases, "worst": worst, "differing": differing}))


def compare(path: Path) -> tuple[float, int]:
    """The largest error of a logit relative to the largest logit, and how many rows are not to the bit the
    same with one thread and two, or alone."""
    from infer_engine.model.kernels.model import KernelLlama
    from infer_engine.model.kernels.stored import StoredMatrices

    source = read_gguf(path)
    architecture = read_architecture(source)
    weights = load_weights(source, architecture, no_progress)
    blocks = torch.randperm(len(CONTEXTS) * BLOCKS_EACH, generator=torch.Generator().manual_seed(1)).tolist()
    tables = [blocks[n * BLOCKS_EACH : (n + 1) * BLOCKS_EACH] for n in range(len(CONTEXTS))]
    contexts = list(zip(CONTEXTS, tables, strict=True))
    prompts = sorted((Span(0, length - 1, table) for length, table in contexts if length > 1), key=pack_order)
    decodes = [Span(length - 1, 1, table) for length, table in contexts]
    expected = torch_logits(Llama(architecture, weights, "fp32", CPU), prompts, decodes)
    found: list[torch.Tensor] = []
    different = 0
    for threads in (1, 2):
        model = KernelLlama(architecture, weights, StoredMatrices(source), threads)
        pool = KvPool(architecture, len(blocks), BLOCK_SIZE, torch.float32, CPU)
        try:
            model(*inputs(prompts), prompts, pool, [])
            found.append(model(*inputs(decodes), decodes, pool, list(range(len(decodes)))).clone())
            for length in ALONE:
                row = CONTEXTS.index(length)
                span = decodes[row]
                alone = model(*inputs([span]), [span], pool, [0])
                different += not torch.equal(alone[0], found[-1][row])
        finally:
            model.close()
    different += int((found[0] != found[1]).any(dim=1).sum())
    return float((found[0] - expected).abs().max() / expected.abs().max()), different


def inputs(spans: list[Span]) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, the same at a position of whichever sequence; and the positions."""
    positions = torch.cat([torch.arange(span.start, span.start + span.count) for span in spans])
    return positions * 37 % 251, positions


def torch_logits(model: Llama, prompts: list[Span], decodes: list[Span]) -> torch.Tensor:
    pool = KvPool(model.architecture, len(decodes) * BLOCKS_EACH, BLOCK_SIZE, torch.float32, CPU)
    logits = torch.empty(0)
    for spans in (prompts, decodes):
        attention = PagedAttention(pool, spans, Scratch(torch.float32, CPU), torch.float32)
        logits = model(*inputs(spans), attention, torch.arange(len(spans)))
    return logits


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
