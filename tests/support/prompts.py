"""Prompts of many lengths for the real model: chats, bare text, code, other scripts, long ones."""

from infer_engine.model.tokenizer import Tokenizer

CHATS = [
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain in two sentences why the sky is blue.",
    "List three uses of a paper clip.",
    "Translate to German: The train leaves at half past nine.",
]
MORE_CHATS = [
    "Hi",
    "Name a prime number above 100.",
    "Which planet is the largest?",
    "Give me a recipe for pancakes.",
    "Write a haiku in which nobody sleeps.",
    "Was ist der Unterschied zwischen Wetter und Klima?",
    "¿Cuántos días tiene un año bisiesto?",
    "Fix the bug: for i in range(10) print(i)",
    "How many legs do three spiders and two cats have together? Think step by step.",
    'Answer with JSON only: {"city": ..., "country": ...} for Lisbon.',
]
#: Turns of one conversation, the user's first.
DIALOGUE = [
    "My name is Ada and I keep bees.",
    "Nice to meet you, Ada! How many hives do you have?",
    "Seven. What was my name again?",
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
MORE_TEXTS = [
    "A",
    "\n",
    "The",
    "import",
    "0",
    "Dear Sir or Madam,",
    "In the beginning",
    "Water boils at",
    "The quick brown fox jumps over the lazy",
    "Roses are red,\nviolets are blue,\n",
    "Monday, Tuesday, Wednesday,",
    "a b c d e f g h i j k",
    "2 + 2 = 4\n3 + 3 = 6\n4 + 4 =",
    "SELECT name, count(*) FROM visits WHERE",
    "#include <stdio.h>\n\nint main(void) {\n    printf(",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        ",
    "fn largest(values: &[i64]) -> Option<i64> {\n    let mut",
    "const sum = (numbers) => numbers.reduce((left, right) =>",
    '{"name": "Ada", "age": 36, "languages": ["English", "French"], "address": {"city":',
    "name,age,city\nAda,36,London\nAlan,41,Wilmslow\nGrace,",
    "# Shopping list\n\n- [x] apples\n- [ ] pears\n- [ ]",
    "| river | km |\n|---|---|\n| Nile | 6650 |\n| Amazon |",
    "La lune était claire et le vent",
    "Die Katze saß auf der Mauer und",
    "Жили-были старик со старухой",
    "むかしむかし、あるところに",
    "السلام عليكم",
    "🙂🙃🙂🙃🙂🙃",
    "x = x + 1; x = x + 1; x = x + 1; x = x + 1; x = x + 1;",
    "Q: Who wrote Hamlet?\nA: William Shakespeare.\nQ: Who wrote Faust?\nA:",
    "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer",
    "$ ls -l\ntotal 12\n-rw-r--r-- 1 ada ada  220 Jan  1 12:00 notes.txt\n-rw-r--r-- 1 ada ada",
    "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n",
    "E = mc² means that energy and mass are",
    "She opened the letter slowly, read it twice, folded it again, and then, without a word to anybody,",
]
#: Entries in the harbour log of a long prompt; about 26 tokens each.
LOG_ENTRIES = [2, 4, 6, 9, 10]


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


def sixty_four_prompts(tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of the prompts above: 1 to about 300 tokens."""
    chats = [tokenizer.chat_prompt([{"role": "user", "content": text}]) for text in [*CHATS, *MORE_CHATS]]
    roles = ["user", "assistant", "user"]
    turns = [{"role": role, "content": text} for role, text in zip(roles, DIALOGUE, strict=True)]
    brief = {"role": "system", "content": "Answer in one word."}
    texts = [tokenizer.completion_prompt(text) for text in [*TEXTS, *MORE_TEXTS]]
    logs = [tokenizer.completion_prompt(harbour_log(entries)) for entries in LOG_ENTRIES]
    return [*chats, tokenizer.chat_prompt(turns), tokenizer.chat_prompt([brief, *turns]), *texts, *logs]
