"""How much work test traffic will be, before it is sent: pure arithmetic on means.

Little's law: requests in flight are their rate times the seconds that each stays. That time depends on how
many are in flight, for they share the steps; so the two are solved together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: A replica that prefills for a larger share of the time cannot keep up with what arrives.
SATURATED_SHARE = 0.95
_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Size:
    """Tokens of one request. ``shared_tokens`` of the prompt are in the prefix cache already."""

    prompt_tokens: int
    output_tokens: int
    shared_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast one replica works."""

    #: Seconds to prefill a prompt of so many tokens.
    prefill_s: Callable[[int], float]
    #: Seconds of a step of so many decoding sequences, each with so many tokens of context.
    step_s: Callable[[int, int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """``None`` where it is not known: nothing has told yet how fast this fleet is."""

    prompt_tokens: float
    output_tokens: float
    rate_per_s: float | None
    in_flight: float | None
    kv_blocks: float | None
    #: Share of the time that a replica prefills for this traffic.
    prefill_share: float | None
    #: It comes faster than it can be prefilled: it piles up to what may be in flight.
    saturated: bool = False


def predict_load(
    sizes: Sequence[Size],
    *,
    rate_per_s: float | None,
    concurrency: int | None,
    replicas: int,
    block_size: int,
    pace: Pace | None,
    most_in_flight: int,
    shared_documents: int = 0,
) -> Load:
    """Of a stream of requests like ``sizes``, over all of ``replicas`` in equal parts. One of ``rate_per_s``
    and ``concurrency`` is given. So many documents are shared: what is in use of them counts once on each
    replica."""
    prompt = sum(size.prompt_tokens for size in sizes) / len(sizes)
    output = sum(size.output_tokens for size in sizes) / len(sizes)
    shared = sum(size.shared_tokens for size in sizes) / len(sizes)

    def blocks(in_flight: float) -> float:
        own = in_flight * _blocks(prompt - shared, output, block_size)
        return own + min(in_flight, shared_documents * replicas) * shared / block_size

    if pace is None:
        in_flight = None if concurrency is None else float(min(concurrency, most_in_flight))
        return Load(
            prompt_tokens=prompt,
            output_tokens=output,
            rate_per_s=rate_per_s,
            in_flight=in_flight,
            kv_blocks=None if in_flight is None else blocks(in_flight),
            prefill_share=None,
        )
    prefill_s = sum(pace.prefill_s(size.prompt_tokens - size.shared_tokens) for size in sizes) / len(sizes)
    context = round(prompt + output / 2)
    if concurrency is not None:
        in_flight = float(min(concurrency, most_in_flight))
        each = in_flight / replicas
        # Whoever decodes waits for the prefills of the others: W = output x step + (n + 1) x prefill.
        stay_s = output * pace.step_s(max(1, round(each)), context) + (each + 1) * prefill_s
        rate, saturated = in_flight / stay_s, False
        share = min(1.0, rate / replicas * prefill_s)
    else:
        rate = rate_per_s or 0.0
        share = rate / replicas * prefill_s
        in_flight = _in_flight(pace, rate / replicas, prefill_s, share, output, context) * replicas
        saturated = share >= SATURATED_SHARE or in_flight > most_in_flight
        in_flight = min(in_flight, float(most_in_flight))
    return Load(
        prompt_tokens=prompt,
        output_tokens=output,
        rate_per_s=rate,
        in_flight=in_flight,
        kv_blocks=blocks(in_flight),
        prefill_share=share,
        saturated=saturated,
    )


def _in_flight(
    pace: Pace, rate_per_s: float, prefill_s: float, share: float, output: float, context: int
) -> float:
    """On one replica."""
    if share >= SATURATED_SHARE:
        return float("inf")
    in_flight = 1.0
    for _ in range(_ROUNDS):
        step_s = pace.step_s(max(1, round(in_flight)), context)
        found = rate_per_s * (prefill_s + output * step_s) / (1 - share)
        in_flight += (found - in_flight) / 2
    return in_flight


def _blocks(prompt: float, output: float, block_size: int) -> float:
    """That a request holds on the mean of its life: its prompt from the beginning, its output as it grows,
    the last block half full."""
    return (prompt + output / 2) / block_size + 0.5
