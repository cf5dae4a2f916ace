"""The committed workload: 16 requests of fixed lengths and arrivals, their prompts real text as token ids.

Token ids, so that every server gets exactly the same tokens whatever it makes of text. ``bench/workload.py``
wrote the file, and writes the same again from its seed.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

#: How far apart the prompts of two repeats begin in the text: no prefix cache may know them from before.
REPEAT_STRIDE = 59


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: the prompt's token ids, exactly how many tokens to answer with, and when it arrives, in
    seconds after the first."""

    prompt: tuple[int, ...]
    output_tokens: int
    arrival_s: float = 0.0


@cache
def _file() -> dict[str, Any]:
    return json.loads(files("infer_engine.benchmark").joinpath("workload.json").read_text(encoding="utf-8"))


def lengths() -> list[tuple[int, int, float]]:
    """(prompt tokens, output tokens, arrival in seconds) of each request."""
    return [(each["prompt_tokens"], each["output_tokens"], each["arrival_s"]) for each in _file()["requests"]]


def text(start: int, count: int, vocabulary: int | None = None) -> tuple[int, ...]:
    """``count`` tokens of the text from token ``start`` on; it begins anew at its end. ``vocabulary`` folds
    the ids into a smaller one: for tests on a tiny model."""
    tokens: list[int] = _file()["tokens"]
    taken = (tokens[(start + at) % len(tokens)] for at in range(count))
    return tuple(token % vocabulary for token in taken) if vocabulary else tuple(taken)


def workload(repeat: int = 0, *, shrink: int = 1, vocabulary: int | None = None) -> list[Ask]:
    """The requests in order of arrival. Each ``repeat`` has the same lengths and other text. ``shrink``
    divides lengths and times, for tests of function."""
    asks: list[Ask] = []
    start = repeat * REPEAT_STRIDE
    for prompt_tokens, output_tokens, arrival_s in lengths():
        prompt = text(start, max(2, prompt_tokens // shrink), vocabulary)
        asks.append(Ask(prompt, max(2, output_tokens // shrink), arrival_s / shrink))
        start += prompt_tokens
    return asks
