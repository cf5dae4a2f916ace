"""Writes the committed workload again: ``python bench/workload.py [--write]``; without ``--write`` it says
whether the committed one is what the seed gives.

Lengths are log-uniform, as people's are: many short answers and a few long ones. Arrivals are a Poisson
process. The text is this repository's own documentation, so the token ids change only when ``--text`` asks.
"""

import argparse
import json
import math
import re
import sys
from pathlib import Path
from random import Random
from typing import Any

SEED = 16
REQUESTS = 16
PROMPT_TOKENS = (16, 256)
OUTPUT_TOKENS = (16, 400)
#: Requests per second at which they arrive.
RATE = 8.0
#: Tokens of text that are kept: longer than the longest prompt of any part.
TEXT_TOKENS = 6144
TEXT_FILES = ("README.md", "docs/scheduler.md", "docs/control.md", "docs/structure.md")
ROOT = Path(__file__).parents[1]
TARGET = ROOT / "engine/infer_engine/benchmark/workload.json"


def requests(seed: int = SEED) -> list[dict[str, Any]]:
    """Lengths and arrivals, in order of arrival; the shortest and the longest of each are among them."""
    draw = Random(seed)
    prompts = _log_uniform(draw, *PROMPT_TOKENS)
    outputs = _log_uniform(draw, *OUTPUT_TOKENS)
    arrival_s = 0.0
    made: list[dict[str, Any]] = []
    for prompt_tokens, output_tokens in zip(prompts, outputs, strict=True):
        made.append(
            {
                "prompt_tokens": prompt_tokens,
                "output_tokens": output_tokens,
                "arrival_s": round(arrival_s, 3),
            }
        )
        arrival_s += draw.expovariate(RATE)
    return made


def _log_uniform(draw: Random, low: int, high: int) -> list[int]:
    """One value from each of as many equal shares of the logarithm as there are requests, shuffled."""
    steps = [(number + draw.random()) / REQUESTS for number in range(REQUESTS)]
    values = [round(math.exp(math.log(low) + step * math.log(high / low))) for step in steps]
    values[0], values[-1] = low, high
    draw.shuffle(values)
    return values


def tokens() -> list[int]:
    """The text by the default model's own tokenizer."""
    from infer_engine.model.gguf_file import read_gguf
    from infer_engine.model.store import resolve
    from infer_engine.model.tokenizer import Tokenizer
    from infer_engine.settings import DEFAULT_MODEL

    tokenizer = Tokenizer(read_gguf(resolve(DEFAULT_MODEL)))
    prose = "\n\n".join(_prose((ROOT / name).read_text(encoding="utf-8")) for name in TEXT_FILES)
    return tokenizer.completion_prompt(prose)[:TEXT_TOKENS]


def _prose(markdown: str) -> str:
    """Without code, drawings, and the signs that only Markdown needs."""
    without_code = re.sub(r"^ *```.*?^ *```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    plain = re.sub(
        r"[`*#|]|\[(?=[^\]]+\]\()|(?<=\w)\]\([^)]*\)|^[-| ]+$", "", without_code, flags=re.MULTILINE
    )
    return re.sub(r"\s+", " ", plain).strip()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="replace the committed file")
    parser.add_argument("--text", action="store_true", help="take today's documentation as the text")
    options = parser.parse_args()
    committed: dict[str, Any] = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    document: dict[str, Any] = {
        "version": 1,
        "seed": SEED,
        "text": "the documentation of this repository, by the default model's tokenizer",
        "tokens": tokens() if options.text or not committed else committed["tokens"],
        "requests": requests(),
    }
    if options.write:
        lines = [f' "{key}": {json.dumps(value)}' for key, value in document.items()]
        TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    elif document != committed:
        print("the committed workload is not what its seed gives", file=sys.stderr)
        return 1
    for each in document["requests"]:
        print(f"{each['arrival_s']:6.3f} s  {each['prompt_tokens']:4} in  {each['output_tokens']:4} out")
    print(f"{sum(each['output_tokens'] for each in document['requests'])} tokens asked for")
    return 0


if __name__ == "__main__":
    sys.exit(main())
