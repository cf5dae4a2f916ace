"""Built-in English for test traffic. Nothing here comes from users."""

import re
from random import Random

from infer_engine.model.tokenizer import Tokenizer

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
SENTENCES = (
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
    found = dict.fromkeys(tokenizer.encode(" ".join(SENTENCES)))
    words = [token for token in found if re.fullmatch(rb" [A-Za-z]{2,}", tokenizer.token_bytes[token])]
    return words or list(found)


def question(random: Random) -> str:
    """A short one."""
    thing, other = random.sample(_THINGS, 2)
    return random.choice(_QUESTIONS).format(
        place=random.choice(_PLACES), thing=thing, other=other, activity=random.choice(_ACTIVITIES)
    )
