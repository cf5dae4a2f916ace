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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pydoc_data import topics
from typing import Any

from infer_engine.benchmark.machine import describe
from infer_engine.benchmark.results import Document, compared, encode, result

WINDOW, BLOCK_SIZE = 512, 16
REFERENCE = "torch fp32"
#: Of the default path's perplexity, over the reference's.
MOST_RATIO = 1.01


#: Logits of every token of a window; both are tensors, and torch is imported once it is known how.
Path = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """The model whose paths are compared, and the text, in windows that each have a context of their own."""

    source: Any
    architecture: Any
    weights: Any
    windows: list[Any]

    @property
    def tokens(self) -> int:
        return sum(len(window) for window in self.windows)

    def pool(self) -> Any:
        import torch
        from infer_engine.model.attention.pool import KvPool

        blocks = WINDOW // BLOCK_SIZE
        return KvPool(self.architecture, blocks, BLOCK_SIZE, torch.float32, torch.device("cpu"))


def subject(model: str | None, tokens: int) -> Subject:
    import torch
    from infer_engine.model.architecture import read_architecture
    from infer_engine.model.gguf_file import read_gguf
    from infer_engine.model.store import no_progress, resolve
    from infer_engine.model.tokenizer import Tokenizer
    from infer_engine.model.weights import load_weights
    from infer_engine.settings import DEFAULT_MODEL

    source = read_gguf(resolve(model or DEFAULT_MODEL))
    architecture = read_architecture(source)
    weights = load_weights(source, architecture, no_progress)
    text = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    ids = Tokenizer(source).encode(text[: 8 * tokens])[:tokens]
    windows = [torch.tensor(ids[at : at + WINDOW]) for at in range(0, len(ids), WINDOW)]
    return Subject(source, architecture, weights, windows)


def whole(window: Any) -> Any:
    """The window as one span of its own blocks."""
    from infer_engine.model.attention.paged import Span

    return Span(0, len(window), list(range(WINDOW // BLOCK_SIZE)))


def torch_path(subject: Subject, kind: Any) -> Path:
    import torch
    from infer_engine.model.attention.paged import PagedAttention, Scratch
    from infer_engine.model.llama import Llama

    cpu = torch.device("cpu")
    model = Llama(subject.architecture, subject.weights, kind, cpu)
    pool = subject.pool()

    def logits(window: Any) -> Any:
        at = torch.arange(len(window))
        attention = PagedAttention(pool, [whole(window)], Scratch(torch.float32, cpu), torch.float32)
        return model(window, at, attention, at)

    return logits


def kernels_path(subject: Subject) -> Path | None:
    """None where this machine cannot run them."""
    import torch
    from infer_engine.model.kernels.choose import kernel_model
    from infer_engine.model.store import no_progress

    model = kernel_model(subject.architecture, subject.weights, subject.source, BLOCK_SIZE, no_progress)
    if model is None:
        return None
    pool = subject.pool()

    def logits(window: Any) -> Any:
        at = torch.arange(len(window))
        return model(window, at, [whole(window)], pool, at.tolist()).clone()

    return logits


def paths(subject: Subject) -> Iterator[tuple[str, Path]]:
    """The reference first."""
    yield REFERENCE, torch_path(subject, "fp32")
    yield "torch packed_fp16", torch_path(subject, "packed_fp16")
    kernels = kernels_path(subject)
    if kernels is not None:
        yield "kernels", kernels


def compare(path: Path, windows: list[Any], expected: list[Any]) -> dict[str, Any]:
    """``expected`` are the reference's log probabilities."""
    loss = same = divergence = worst = count = 0.0
    for window, right in zip(windows, expected, strict=True):
        ours = path(window).log_softmax(-1)
        loss -= float(ours[:-1].gather(1, window[1:, None]).double().sum())
        same += float((ours.argmax(-1) == right.argmax(-1)).sum())
        divergence += float((right.exp() * (right - ours)).double().sum())
        worst = max(worst, float((ours - right).abs().max()))
        count += len(window)
    return {
        "perplexity": math.exp(loss / (count - len(windows))),
        "argmax_agreement": same / count,
        "mean_kl": divergence / count,
        "largest_log_probability_error": worst,
    }


def measured(subject: Subject) -> list[dict[str, Any]]:
    import torch

    results: list[dict[str, Any]] = []
    expected: list[Any] = []
    with torch.inference_mode():
        for name, path in paths(subject):
            expected = expected or [path(window).log_softmax(-1) for window in subject.windows]
            results.append({"path": name, **compare(path, subject.windows, expected)})
    for each in results:
        each["perplexity_ratio"] = each["perplexity"] / results[0]["perplexity"]
    return results


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
    asked = subject(options.model, options.tokens)
    results = measured(asked)
    if options.json:
        sys.stdout.buffer.write(encode(document(results, asked.tokens)))
    else:
        json.dump({"tokens": asked.tokens, "results": results}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
