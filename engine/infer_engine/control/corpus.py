"""Built-in English for test traffic, and what a request of each profile asks. Nothing here comes from
users."""

import re
from collections.abc import Iterator
from random import Random
from typing import Literal, get_args

from msgspec import Struct

from infer_engine.model.tokenizer import Tokenizer

Profile = Literal["chat", "long-context", "long-answer", "burst", "mixed"]
PROFILES: tuple[Profile, ...] = get_args(Profile)

#: Requests of one burst arrive together; one burst stands for this many seconds of the asked rate.
BURST_EVERY_S = 5.0
#: Share of long-context requests in ``mixed``.
MIXED_LONG_SHARE = 0.2

_QUESTIONS = (
    "What is the capital of {place}?",
    "Explain in two sentences why {thing} matters.",
    "Give me three short tips for {activity}.",
    "Write a friendly note that thanks a neighbour for {activity}.",
    "Compare {thing} with {other} for someone who knows neither.",
    "Summarise what happens when {thing} meets {other}.",
    "I am planning a weekend in {place}. What should I pack?",
    "Tell a very short story about {thing} in {place}.",
    "List the steps of {activity}, one line each.",
    "Is {thing} older than {other}? Answer with a reason.",
)
_PLACES = ("France", "Norway", "Peru", "Japan", "Kenya", "Canada", "Portugal", "Vietnam", "Iceland", "Chile")
_THINGS = (
    "a lighthouse",
    "the printing press",
    "a sourdough starter",
    "the night train",
    "a paper map",
    "rain on a tin roof",
    "the metric system",
    "a sundial",
    "a library card",
    "the tide table",
)
_ACTIVITIES = (
    "watering the garden",
    "learning to whistle",
    "repairing a bicycle tyre",
    "baking bread",
    "packing a tent",
    "reading a contour map",
    "keeping bees",
    "tuning a guitar",
)
_SENTENCES = (
    "The ferry leaves the harbour at half past six and takes the slow way round the island.",
    "Nobody had wound the clock in the hall since the spring, so it was right twice a day.",
    "A good map leaves out almost everything and is useful because of it.",
    "The baker counts the loaves in dozens, the customers count them in breakfasts.",
    "When the river rose, the lower bridge was closed and the town learned how long the other way was.",
    "She kept the receipts in a tin, the tin in a drawer, and the key to the drawer in the tin.",
    "The orchard was planted by someone who would not eat from it, for someone not yet born.",
    "Every evening the signal box prints one line on a paper strip that nobody has read for years.",
    "There are two keys to the observatory, and on clear nights both are out.",
    "The committee agreed that the fence should be green, and then spent a month on which green.",
    "He measured the room twice, bought the carpet once, and moved the wall by a hand's breadth.",
    "In winter the lake keeps the sounds of the village and gives them back an hour later.",
)


def ordinary_tokens(tokenizer: Tokenizer) -> list[int]:
    """Tokens of this English, whole words with their leading space where the vocabulary has any: harmless to
    read in any order. Without special tokens."""
    found = dict.fromkeys(tokenizer.encode(" ".join(_SENTENCES)))
    words = [token for token in found if re.fullmatch(rb" [A-Za-z]{2,}", tokenizer.token_bytes[token])]
    return words or list(found)


class Ask(Struct, frozen=True):
    """One request to make: what to say and how much may be answered."""

    text: str
    max_tokens: int
    #: Shorten the prompt to this many tokens, when it has more.
    prompt_tokens: int


def compose(profile: Profile, random: Random, room_tokens: int) -> Ask:
    """The next request of ``profile``; prompt and answer together take at most ``room_tokens``."""
    long = profile == "long-context" or (profile == "mixed" and random.random() < MIXED_LONG_SHARE)
    shortest, longest = (16, 64) if long else (256, 1024) if profile == "long-answer" else (16, 128)
    max_tokens = min(random.randint(shortest, longest), max(1, room_tokens // 2))
    most = max(1, room_tokens - max_tokens)
    if not long:
        return Ask(_question(random), max_tokens, most)
    # English prose has about 1.3 tokens a word and a sentence here about 17 words.
    wanted = random.randint(most // 4, most)
    sentences = [random.choice(_SENTENCES) for _ in range(wanted // 20 + 1)]
    return Ask(f"Summarise this in one sentence.\n\n{' '.join(sentences)}", max_tokens, wanted)


def arrivals(profile: Profile, random: Random, rate_per_s: float) -> Iterator[float]:
    """Seconds from each arrival to the next, for ever. An open loop: arrivals never wait for answers."""
    burst = max(1, round(rate_per_s * BURST_EVERY_S)) if profile == "burst" else 1
    while True:
        yield random.expovariate(rate_per_s / burst)
        for _ in range(burst - 1):
            yield 0.0


def _question(random: Random) -> str:
    thing, other = random.sample(_THINGS, 2)
    return random.choice(_QUESTIONS).format(
        place=random.choice(_PLACES), thing=thing, other=other, activity=random.choice(_ACTIVITIES)
    )
