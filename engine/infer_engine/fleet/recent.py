"""What came to the door lately: the best guess at what will come next."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from infer_engine.fleet.generation import GenerationSpec
from infer_engine.protocol import Tier

#: What is remembered: a minute, and no more requests than these.
SPAN_S = 60.0
MOST = 4_096


@dataclass(frozen=True, slots=True)
class Arrival:
    """``tier`` as it was asked for, whatever the tenant's limits made of it."""

    at_s: float
    tenant: str
    tier: Tier
    prompt_tokens: int
    max_tokens: int
    synthetic: bool


class Recent:
    """Taken and refused alike, in order. Moments are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._seen: deque[Arrival] = deque(maxlen=MOST)

    def add(self, spec: GenerationSpec, now_s: float) -> None:
        self._seen.append(
            Arrival(now_s, spec.tenant, spec.tier, len(spec.prompt), spec.max_tokens, spec.synthetic)
        )

    def again(self, now_s: float, horizon_s: float) -> Iterator[tuple[float, Arrival]]:
        """What came, coming again from now on: seconds from now, in order. What was seen for less than a
        minute (the server is young, or there was more than is kept) is repeated."""
        seen = [each for each in self._seen if each.at_s > now_s - SPAN_S]
        if not seen:
            return
        # Where fewer than can be kept came, the minute before is known to the end, quiet times included.
        full = len(self._seen) < MOST and now_s >= SPAN_S
        period_s = SPAN_S if full else max(1.0, now_s - seen[0].at_s)
        begun_s = 0.0
        while begun_s < horizon_s:
            for each in seen:
                at_s = begun_s + each.at_s - (now_s - period_s)
                if at_s >= horizon_s:
                    return
                yield at_s, each
            begun_s += period_s
