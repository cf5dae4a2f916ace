"""What a request of each profile of test traffic asks: pure and seeded."""

from collections.abc import Iterator
from random import Random
from typing import Literal, get_args

from msgspec import Struct

from infer_engine.control.corpus import question
from infer_engine.protocol import Tier, TraceRequest

#: ``trace`` is what a recording says.
Profile = Literal[
    "chat", "long-context", "long-answer", "shared-prefix", "burst", "batch-backfill", "mixed", "trace"
]
PROFILES: tuple[Profile, ...] = get_args(Profile)

#: Documents that the requests of ``shared-prefix`` begin with, one of them each.
SHARED_DOCUMENTS = 4
#: Most tokens of a shared document.
SHARED_TOKENS = 2_048
#: What ``mixed`` is made of, in percent.
MIX: dict[Profile, int] = {"chat": 60, "long-context": 15, "shared-prefix": 15, "batch-backfill": 10}
#: Fewest and most tokens of an answer.
_ANSWERS: dict[Profile, tuple[int, int]] = {
    "chat": (16, 128),
    "long-context": (16, 64),
    "long-answer": (256, 1_024),
    "shared-prefix": (16, 128),
    "burst": (16, 128),
    "batch-backfill": (128, 512),
}


class Ask(Struct, frozen=True, kw_only=True):
    """One request to make."""

    question: str
    max_tokens: int
    #: The prompt takes at most so many tokens, template included.
    most_prompt_tokens: int
    tier: Tier = "interactive"
    #: Tokens of English before the question, and which: equal numbers stand for equal documents.
    document_tokens: int = 0
    document: int = 0
    #: Prompt and answer take all they may: so many tokens, not up to so many.
    exact: bool = False


def asks(profile: Profile, seed: int, room_tokens: int) -> Iterator[Ask]:
    """The requests of ``profile`` one after another, for ever; prompt and answer of each take at most
    ``room_tokens`` together."""
    random = Random(f"{seed}/asks")
    while True:
        yield _compose(profile, random, room_tokens)


def traced(trace: list[TraceRequest], seed: int) -> Iterator[Ask]:
    """The requests of a recording. Their prompts are made up and have nothing in common."""
    random = Random(f"{seed}/asks")
    for each in trace:
        yield Ask(
            question=question(random),
            max_tokens=each.output_tokens,
            most_prompt_tokens=each.prompt_tokens,
            tier=each.tier,
            document_tokens=each.prompt_tokens,
            document=random.getrandbits(32),
            exact=True,
        )


def _compose(profile: Profile, random: Random, room_tokens: int) -> Ask:
    if profile == "mixed":
        profile = random.choices(list(MIX), list(MIX.values()))[0]
    max_tokens = min(random.randint(*_ANSWERS[profile]), max(1, room_tokens // 2))
    most = max(1, room_tokens - max_tokens)
    document = random.getrandbits(32)
    match profile:
        case "long-context":
            tokens = random.randint(most // 4, most)
        case "batch-backfill":
            tokens = random.randint(most // 16, most // 4)
        case "shared-prefix":
            tokens = min(SHARED_TOKENS, room_tokens // 4)
            # Beyond the numbers of the other documents.
            document = (1 << 32) + document % SHARED_DOCUMENTS
        case _:
            tokens = 0
    return Ask(
        question=question(random),
        max_tokens=max_tokens,
        most_prompt_tokens=most,
        tier="batch" if profile == "batch-backfill" else "interactive",
        document_tokens=tokens,
        document=document,
    )
