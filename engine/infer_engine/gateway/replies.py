"""The documents that answer a request, field for field as clients of the OpenAI API expect them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from infer_engine.gateway.logprob_documents import LogprobDocuments
from infer_engine.gateway.token_trail import ToldToken

Document = dict[str, Any]
#: What a client is told: every other end of a generation is an error.
ClientFinish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One whole choice; ``told`` None where no logprobs were asked for."""

    text: str
    finish: ClientFinish
    told: Sequence[ToldToken] | None


class ChatReply:
    """``chat.completion`` and its chunks. ``created_at`` is Unix seconds. ``logprobs`` None: they were not
    asked for."""

    def __init__(
        self,
        request_id: str,
        model: str,
        created_at: float,
        include_usage: bool,
        logprobs: LogprobDocuments | None = None,
    ) -> None:
        self._head: Document = {"id": f"chatcmpl-{request_id}", "created": int(created_at), "model": model}
        self._include_usage = include_usage
        self._logprobs = logprobs

    def opening(self, choices: int = 1) -> list[Document]:
        return [
            self._chunk(index, {"role": "assistant", "content": ""}, None, None) for index in range(choices)
        ]

    def delta(self, text: str, index: int = 0, told: Sequence[ToldToken] | None = None) -> Document:
        return self._chunk(index, {"content": text}, None, told)

    def closing(self, finish: ClientFinish, index: int = 0) -> Document:
        return self._chunk(index, {}, finish, None)

    def usage(self, usage: Document) -> Document:
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Choice], usage: Document) -> Document:
        documents = [
            {
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": self._told(choice.told),
                "finish_reason": choice.finish,
            }
            for index, choice in enumerate(choices)
        ]
        return {**self._head, "object": "chat.completion", "choices": documents, "usage": usage}

    def _chunk(
        self,
        index: int,
        delta: Document,
        finish: ClientFinish | None,
        told: Sequence[ToldToken] | None,
    ) -> Document:
        choice = {"index": index, "delta": delta, "logprobs": self._told(told), "finish_reason": finish}
        chunk: Document = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        if self._include_usage:
            chunk["usage"] = None
        return chunk

    def _told(self, told: Sequence[ToldToken] | None) -> Document | None:
        return None if told is None or self._logprobs is None else self._logprobs.chat(told)


class CompletionReply:
    """``text_completion``, whole and in chunks. ``created_at`` is Unix seconds. ``logprobs`` None: they were
    not asked for."""

    def __init__(
        self,
        request_id: str,
        model: str,
        created_at: float,
        include_usage: bool,
        logprobs: LogprobDocuments | None = None,
    ) -> None:
        self._head: Document = {
            "id": f"cmpl-{request_id}",
            "object": "text_completion",
            "created": int(created_at),
            "model": model,
        }
        self._include_usage = include_usage
        self._logprobs = logprobs

    def opening(self, choices: int = 1) -> list[Document]:
        return []

    def delta(self, text: str, index: int = 0, told: Sequence[ToldToken] | None = None) -> Document:
        return self._chunk(index, text, None, told)

    def closing(self, finish: ClientFinish, index: int = 0) -> Document:
        return self._chunk(index, "", finish, None)

    def usage(self, usage: Document) -> Document:
        return {**self._head, "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Choice], usage: Document) -> Document:
        documents = [
            self._choice(index, choice.text, choice.finish, choice.told)
            for index, choice in enumerate(choices)
        ]
        return {**self._head, "choices": documents, "usage": usage}

    def _chunk(
        self, index: int, text: str, finish: ClientFinish | None, told: Sequence[ToldToken] | None
    ) -> Document:
        chunk: Document = {**self._head, "choices": [self._choice(index, text, finish, told)]}
        if self._include_usage:
            chunk["usage"] = None
        return chunk

    def _choice(
        self, index: int, text: str, finish: ClientFinish | None, told: Sequence[ToldToken] | None
    ) -> Document:
        logprobs = None if told is None or self._logprobs is None else self._logprobs.completion(told)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}


def usage(prompt_tokens: int, completion_tokens: int) -> Document:
    """The prompt counts once, however many choices were made of it."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
