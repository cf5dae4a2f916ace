"""Prompts of many lengths for the real model: chats, bare text, code, other scripts, long ones."""

from infer_engine.model.tokenizer import Tokenizer

CHATS = [
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain in two sentences why the sky is blue.",
    "List three uses of a paper clip.",
    "Translate to German: The train leaves at half past nine.",
]
TEXTS = [
    "Once",
    "The three laws of motion are",
    "def fibonacci(n):\n    ",
    "1, 1, 2, 3, 5, 8, 13, ",
    "Bread is made of flour, water, salt and yeast. To bake a loaf,",
    "Größe, naïveté, 東京 and 🚂 are words that",
    "<p>The first paragraph of a page</p>\n<p>",
]
#: Entries in the harbour log of a long prompt; about 26 tokens each.
LOG_ENTRIES = [4, 9, 15, 23]


def harbour_log(entries: int) -> str:
    """Prose of any length in which nothing repeats exactly."""
    winds = ["north", "south-west", "east", "west", "north-east"]
    cargos = ["timber", "salt fish", "copper ore", "barrels of wine", "wool", "coal", "clay pots"]
    lines = [
        f"Day {day}: the wind came from the {winds[day % 5]}, {3 * day % 11 + 2} ships entered the harbour, "
        f"and the largest of them carried {cargos[day * 3 % 7]}."
        for day in range(1, entries + 1)
    ]
    return "From the log of the harbour master.\n" + "\n".join(lines) + "\nIn summary,"


def sixteen_prompts(tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of the prompts above: 1 to about 600 tokens."""
    chats = [tokenizer.chat_prompt([{"role": "user", "content": text}]) for text in CHATS]
    texts = [tokenizer.completion_prompt(text) for text in TEXTS]
    logs = [tokenizer.completion_prompt(harbour_log(entries)) for entries in LOG_ENTRIES]
    return [*chats, *texts, *logs]
