"""Our figures beside the peers': derived from what was measured, never measured."""

from infer_engine.benchmark.results import Document, Result, compared, find
from infer_engine.benchmark.served import ALONE, USEFUL
from peers.parts import CONTINUOUS, LLAMACPP, STATIC, VLLM

#: Measure, peer, and the least that our figure should be of the peer's.
WANTED: tuple[tuple[str, str, float], ...] = (
    (USEFUL, STATIC, 3.0),
    (USEFUL, CONTINUOUS, 3.0),
    (USEFUL, VLLM, 1.5),
    (USEFUL, LLAMACPP, 1.1),
    (ALONE, LLAMACPP, 0.6),
    (ALONE, VLLM, 2.0),
)
PART = "comparison"


def comparisons(document: Document) -> list[Result]:
    """One for each pair of which we were measured; the ratio is unknown where the peer was not."""
    made: list[Result] = []
    for measure, peer, wanted in WANTED:
        ours, theirs = find(document, measure), find(document, measure, peer)
        if ours is not None:
            value = theirs.value if theirs is not None else None
            made.append(compared(measure, ours.unit, ours.samples, peer, value, wanted=wanted))
    return made
