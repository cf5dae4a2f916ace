"""Prompts of test traffic as tokens: the model's own chat template around English of the asked length."""

from functools import cached_property
from random import Random

from infer_engine.control.corpus import SENTENCES
from infer_engine.control.profiles import Ask
from infer_engine.model.tokenizer import Tokenizer

#: What stands where the prompt goes while the template is looked at.
_MARK = "The ferry leaves at noon."


class Prompts:
    """Documents are put together from sentences that were tokenized once, so that a long prompt costs the
    server's loop no more than copying it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def build(self, ask: Ask) -> tuple[int, ...]:
        """At most ``ask.most_prompt_tokens`` tokens, exactly so many where it says so: of those that have to
        go the document's go first."""
        head, tail = self._frame
        question = self._tokenizer.encode(f" {ask.question}" if ask.document_tokens else ask.question)
        room = max(0, ask.most_prompt_tokens - len(head) - len(tail))
        question = question[:room]
        left = room - len(question)
        wanted = left if ask.exact else min(ask.document_tokens, left)
        prompt = (*head, *self._document(ask.document, wanted), *question, *tail)
        return prompt[: ask.most_prompt_tokens]

    def _document(self, number: int, tokens: int) -> list[int]:
        random = Random(number)
        made: list[int] = []
        while len(made) < tokens:
            made += random.choice(self._sentences)
        return made[:tokens]

    @cached_property
    def _sentences(self) -> list[list[int]]:
        return [self._tokenizer.encode(f" {sentence}") for sentence in SENTENCES]

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """What the template puts before a prompt and behind it. A template that does not show the prompt as
        it is has it all before."""
        tokenizer = self._tokenizer
        if not tokenizer.has_chat_template:
            return tokenizer.completion_prompt(""), []
        framed = tokenizer.chat_prompt([{"role": "user", "content": _MARK}])
        mark = tokenizer.encode(_MARK)
        for start in range(len(framed) - len(mark), -1, -1):
            if framed[start : start + len(mark)] == mark:
                return framed[:start], framed[start + len(mark) :]
        return framed, []
