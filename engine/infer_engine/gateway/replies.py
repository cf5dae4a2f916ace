"""The documents that answer a request, field for field as clients of the OpenAI API expect them."""

from typing import Any, Literal

Document = dict[str, Any]
#: What a client is told: every other end of a generation is an error.
ClientFinish = Literal["stop", "length"]


class ChatReply:
    """``chat.completion`` and its chunks. ``created_at`` is Unix seconds."""

    def __init__(self, request_id: str, model: str, created_at: float, include_usage: bool) -> None:
        self._head: Document = {"id": f"chatcmpl-{request_id}", "created": int(created_at), "model": model}
        self._include_usage = include_usage

    def opening(self) -> list[Document]:
        return [self._chunk({"role": "assistant", "content": ""}, None)]

    def delta(self, text: str) -> Document:
        return self._chunk({"content": text}, None)

    def closing(self, finish: ClientFinish) -> Document:
        return self._chunk({}, finish)

    def usage(self, usage: Document) -> Document:
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def whole(self, text: str, finish: ClientFinish, usage: Document) -> Document:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage}

    def _chunk(self, delta: Document, finish: ClientFinish | None) -> Document:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk: Document = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        if self._include_usage:
            chunk["usage"] = None
        return chunk


class CompletionReply:
    """``text_completion``, whole and in chunks. ``created_at`` is Unix seconds."""

    def __init__(self, request_id: str, model: str, created_at: float, include_usage: bool) -> None:
        self._head: Document = {
            "id": f"cmpl-{request_id}",
            "object": "text_completion",
            "created": int(created_at),
            "model": model,
        }
        self._include_usage = include_usage

    def opening(self) -> list[Document]:
        return []

    def delta(self, text: str) -> Document:
        return self._chunk(text, None)

    def closing(self, finish: ClientFinish) -> Document:
        return self._chunk("", finish)

    def usage(self, usage: Document) -> Document:
        return {**self._head, "choices": [], "usage": usage}

    def whole(self, text: str, finish: ClientFinish, usage: Document) -> Document:
        return {**self._head, "choices": [self._choice(text, finish)], "usage": usage}

    def _chunk(self, text: str, finish: ClientFinish | None) -> Document:
        chunk: Document = {**self._head, "choices": [self._choice(text, finish)]}
        if self._include_usage:
            chunk["usage"] = None
        return chunk

    def _choice(self, text: str, finish: ClientFinish | None) -> Document:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


def usage(prompt_tokens: int, completion_tokens: int) -> Document:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
