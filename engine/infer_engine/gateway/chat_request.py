"""The body of ``POST /v1/chat/completions``."""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from infer_engine.gateway.errors import ApiError, invalid, shown
from infer_engine.gateway.fields import Fields, check_unicode
from infer_engine.gateway.logprob_documents import LogprobDocuments
from infer_engine.gateway.params import Bounds, Params, read_params
from infer_engine.gateway.replies import ChatReply
from infer_engine.gateway.sampling_params import read_chat_logprobs
from infer_engine.model.chat_template import ChatTemplateError
from infer_engine.model.tokenizer import Tokenizer

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """``messages`` are ``{"role", "content"}``, content always text."""

    model: str
    messages: list[dict[str, str]]
    params: Params
    prompt_field: ClassVar[str] = "messages"

    @property
    def chars(self) -> int:
        return sum(len(message["content"]) for message in self.messages)

    def encode(self, tokenizer: Tokenizer) -> list[int]:
        """Token ids of the conversation in the model's own chat template. Raise ApiError (400) when that
        refuses them."""
        try:
            return tokenizer.chat_prompt(self.messages)
        except ChatTemplateError as error:
            raise invalid("messages", str(error), code="invalid_messages") from None

    def reply(self, request_id: str, created_at: float, logprobs: LogprobDocuments | None) -> ChatReply:
        return ChatReply(request_id, self.model, created_at, self.params.include_usage, logprobs)


def read_chat_request(fields: Fields, bounds: Bounds) -> ChatRequest:
    """Raise ApiError (400) naming the first field that is not acceptable."""
    model = fields.text("model", None, max_chars=256)
    if model is None:
        fields.refuse("model", "the model's name")
    params = read_params(fields, bounds, logprobs=read_chat_logprobs(fields))
    return ChatRequest(model, _messages(fields, bounds.settings.max_messages), params)


def _messages(fields: Fields, most: int) -> list[dict[str, str]]:
    value = fields.raw("messages")
    if not isinstance(value, list):
        fields.refuse("messages", f"a list of 1 to {most:,} messages")
    messages = cast("list[Any]", value)
    if not 1 <= len(messages) <= most:
        raise invalid(
            "messages", f"messages must be a list of 1 to {most:,} messages; {len(messages):,} were given"
        )
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(value: Any, path: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise invalid(path, f"{path} must be an object with role and content, not {shown(value)}")
    fields = Fields(cast("dict[str, Any]", value), path)
    role = fields.choice("role", None, ROLES)
    if role is None:
        fields.refuse("role", "one of " + ", ".join(ROLES))
    for field in ("tool_calls", "function_call"):
        if fields.raw(field):
            raise _unsupported(fields.name(field), f"{fields.name(field)} is not supported")
    return {"role": role, "content": _content(fields)}


def _content(fields: Fields) -> str:
    value = fields.raw("content")
    name = fields.name("content")
    if isinstance(value, str):
        check_unicode(value, name)
        return value
    if not isinstance(value, list):
        fields.refuse("content", "a string or a list of text parts")
    return "".join(_part(part, f"{name}[{index}]") for index, part in enumerate(cast("list[Any]", value)))


def _part(value: Any, path: str) -> str:
    if not isinstance(value, dict):
        raise invalid(path, f'{path} must be {{"type": "text", "text": …}}, not {shown(value)}')
    fields = Fields(cast("dict[str, Any]", value), path)
    kind = fields.raw("type")
    if kind != "text":
        raise _unsupported(
            fields.name("type"),
            f"{fields.name('type')} {shown(kind)} is not supported; the only type allowed is text",
        )
    text = fields.raw("text")
    if not isinstance(text, str):
        fields.refuse("text", "a string")
    check_unicode(text, fields.name("text"))
    return text


def _unsupported(param: str, message: str) -> ApiError:
    return invalid(param, message, code="unsupported_value")
