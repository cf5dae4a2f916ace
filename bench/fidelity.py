"""How far each path of the CPU is from the fp32 reference: perplexity, agreement, divergence, on a text that
comes with Python (the topics of its ``help``).

python bench/fidelity.py --tokens 1536
python bench/fidelity.py --json            the path that --dtype auto takes, as one results document
"""

import argparse
import json
import math
import os
import sys
from pydoc_data import topics
from typing import Any

from infer_engine.benchmark.machine import describe
from infer_engine.benchmark.results import Document, compared, encode, result

WINDOW = 512
REFERENCE = "torch fp32"
#: Of the default path's perplexity, over the reference's.
MOST_RATIO = 1.01


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokens", type=int, default=1536, help="in windows of 512, each with its own context"
    )
    parser.add_argument("--model", default=None, help="a GGUF file; default: the bundled model")
    parser.add_argument("--json", action="store_true", help="one results document, of the default path")
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    import torch
    from infer_engine.model.architecture import read_architecture
    from infer_engine.model.attention.paged import PagedAttention, Scratch, Span
    from infer_engine.model.attention.pool import KvPool
    from infer_engine.model.gguf_file import read_gguf
    from infer_engine.model.kernels.choose import kernel_model
    from infer_engine.model.llama import Llama
    from infer_engine.model.store import no_progress, resolve
    from infer_engine.model.tokenizer import Tokenizer
    from infer_engine.model.weights import load_weights
    from infer_engine.settings import DEFAULT_MODEL

    cpu = torch.device("cpu")
    source = read_gguf(resolve(options.model or DEFAULT_MODEL))
    architecture = read_architecture(source)
    weights = load_weights(source, architecture, no_progress)
    text = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    ids = Tokenizer(source).encode(text[: 8 * options.tokens])[: options.tokens]
    windows = [torch.tensor(ids[at : at + WINDOW]) for at in range(0, len(ids), WINDOW)]
    blocks = WINDOW // 16
    span_table = list(range(blocks))

    def torch_path(kind: Any) -> Any:
        model = Llama(architecture, weights, kind, cpu)
        pool = KvPool(architecture, blocks, 16, torch.float32, cpu)

        def logits(window: Any) -> Any:
            at = torch.arange(len(window))
            spans = [Span(0, len(window), span_table)]
            attention = PagedAttention(pool, spans, Scratch(torch.float32, cpu), torch.float32)
            return model(window, at, attention, at)

        return logits

    def kernels_path() -> Any:
        model = kernel_model(architecture, weights, source, 16, no_progress)
        if model is None:
            return None
        pool = KvPool(architecture, blocks, 16, torch.float32, cpu)

        def logits(window: Any) -> Any:
            at = torch.arange(len(window))
            return model(window, at, [Span(0, len(window), span_table)], pool, at.tolist()).clone()

        return logits

    results: list[dict[str, Any]] = []
    with torch.inference_mode():
        reference = torch_path("fp32")
        expected = [reference(window).log_softmax(-1) for window in windows]
        for name, path in (
            (REFERENCE, reference),
            ("torch packed_fp16", torch_path("packed_fp16")),
            ("kernels", kernels_path()),
        ):
            if path is None:
                continue
            loss = same = divergence = worst = count = 0.0
            for window, right in zip(windows, expected, strict=True):
                ours = path(window).log_softmax(-1)
                loss -= float(ours[:-1].gather(1, window[1:, None]).double().sum())
                same += float((ours.argmax(-1) == right.argmax(-1)).sum())
                divergence += float((right.exp() * (right - ours)).double().sum())
                worst = max(worst, float((ours - right).abs().max()))
                count += len(window)
            results.append(
                {
                    "path": name,
                    "perplexity": math.exp(loss / (count - len(windows))),
                    "argmax_agreement": same / count,
                    "mean_kl": divergence / count,
                    "largest_log_probability_error": worst,
                }
            )
    base = results[0]["perplexity"]
    for each in results:
        each["perplexity_ratio"] = each["perplexity"] / base
    if options.json:
        sys.stdout.buffer.write(encode(document(results, len(ids))))
    else:
        json.dump({"tokens": len(ids), "results": results}, sys.stdout, indent=1)
        print()


def document(results: list[dict[str, Any]], tokens: int) -> Document:
    """Of the last path: what ``--dtype auto`` takes here."""
    chosen, base = results[-1], results[0]["perplexity"]
    note = f"{chosen['path']}, {tokens} tokens of the topics of Python's help"
    return Document(
        machine=describe(),
        results=[
            compared(
                "perplexity of the default path",
                "",
                [chosen["perplexity"]],
                REFERENCE,
                base,
                wanted=MOST_RATIO,
                bound="most",
                note=note,
            ),
            result("argmax agreement with " + REFERENCE, "share", [chosen["argmax_agreement"]], note=note),
            result("mean KL divergence from " + REFERENCE, "nats", [chosen["mean_kl"]], note=note),
            result(
                "largest error of a log probability",
                "nats",
                [chosen["largest_log_probability_error"]],
                note=note,
            ),
        ],
    )


if __name__ == "__main__":
    main()
