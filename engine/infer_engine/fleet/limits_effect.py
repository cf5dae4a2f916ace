"""What other live limits would mean for one replica, told from what it said last: no more than is known."""

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

#: A prompt to count steps by.
EXAMPLE_TOKENS = 4_096


class Load(NamedTuple):
    """Of one replica, now."""

    running: int
    #: Of those, how many decode: each takes a token of every step.
    decoding: int
    waiting: int
    #: The longest step that is remembered; None before any.
    longest_step_s: float | None


def meaning(load: Load, before: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """Sentences about those of ``limits`` that would change and that there is something to say of."""
    lines: list[str] = []
    for name, new in limits.items():
        old = before[name]
        if new == old:
            continue
        if name == "token_budget":
            lines += _budget(load, old, new)
        elif name == "max_running":
            lines += _batch(load, new)
        elif name == "max_long_prefills":
            long = before.get("long_prefill_tokens")
            what = f"prompts of more than {long:,} tokens" if long is not None else "long prompts"
            lines.append(f"{new} at once of {what} are computed, the next ones wait for these")
    return lines


def _budget(load: Load, old: int, new: int) -> list[str]:
    left_old, left_new = max(1, old - load.decoding), max(1, new - load.decoding)
    steps_old, steps_new = ceil(EXAMPLE_TOKENS / left_old), ceil(EXAMPLE_TOKENS / left_new)
    beside = f"beside the {load.decoding:,} that decode now, " if load.decoding else ""
    prompt = f"{beside}a prompt of {EXAMPLE_TOKENS:,} tokens"
    lines = [f"{prompt} takes at least {_steps(steps_new)} (now {steps_old:,})"]
    if load.longest_step_s is not None:
        longest = (
            f"the longest step lately took {load.longest_step_s * 1e3:,.0f} ms, of at most {old:,} tokens"
        )
        lines.append(
            f"{longest}; of at most {new:,} none is longer for its prompts"
            if new < old
            else f"{longest}; one of {new:,} may take longer, and all that decode wait for it"
        )
    return lines


def _batch(load: Load, new: int) -> list[str]:
    """Where more run than may there is a warning that says so."""
    if load.running > new:
        return []
    places = f"{new - load.running} places are free beside the {load.running} that run"
    if not load.waiting:
        return [f"{places}; who finds none waits"]
    more = min(load.waiting, new - load.running)
    return [f"{places}: at most {more} of the {load.waiting} that wait get in, as the KV has room"]


def _steps(number: int) -> str:
    return f"{number:,} step" if number == 1 else f"{number:,} steps"
