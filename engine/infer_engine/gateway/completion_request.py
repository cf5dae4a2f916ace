"""The body of ``POST /v1/completions``."""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from infer_engine.gateway.errors import invalid, shown
from infer_engine.gateway.fields import Fields, check_unicode
from infer_engine.gateway.logprob_documents import LogprobDocuments
from infer_engine.gateway.params import Bounds, Params, read_params
from infer_engine.gateway.replies import CompletionReply
from infer_engine.gateway.sampling_params import read_completion_logprobs
from infer_engine.model.tokenizer import Tokenizer

#: OpenAI's default for this endpoint.
DEFAULT_MAX_TOKENS = 16
_ALLOWED = "a string, a list of one string, or a list of token ids"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """``prompt`` is text to tokenize, or token ids to take as they are."""

    model: str
    prompt: str | tuple[int, ...]
    params: Params
    prompt_field: ClassVar[str] = "prompt"

    @property
    def chars(self) -> int:
        return len(self.prompt) if isinstance(self.prompt, str) else 0

    def encode(self, tokenizer: Tokenizer) -> list[int]:
        prompt = self.prompt
        return tokenizer.completion_prompt(prompt) if isinstance(prompt, str) else list(prompt)

    def reply(self, request_id: str, created_at: float, logprobs: LogprobDocuments | None) -> CompletionReply:
        return CompletionReply(request_id, self.model, created_at, self.params.include_usage, logprobs)


def read_completion_request(fields: Fields, bounds: Bounds) -> CompletionRequest:
    """Raise ApiError (400) naming the first field that is not acceptable."""
    model = fields.text("model", None, max_chars=256)
    if model is None:
        fields.refuse("model", "the model's name")
    params = read_params(
        fields,
        bounds,
        logprobs=read_completion_logprobs(fields),
        default_max_tokens=min(DEFAULT_MAX_TOKENS, bounds.context_length),
    )
    return CompletionRequest(model, _prompt(fields, bounds.vocabulary_size), params)


def _prompt(fields: Fields, vocabulary_size: int) -> str | tuple[int, ...]:
    value: Any = fields.raw("prompt")
    if isinstance(value, list):
        several = cast("list[Any]", value)
        if several and isinstance(several[0], str | list):
            if len(several) > 1:
                raise invalid(
                    "prompt",
                    f"prompt holds {len(several):,} prompts; one per request is supported",
                    code="unsupported_value",
                )
            value = several[0]
    if isinstance(value, str):
        if not value:
            raise invalid("prompt", "prompt is empty; at least one token is needed")
        check_unicode(value, "prompt")
        return value
    if not isinstance(value, list):
        fields.refuse("prompt", _ALLOWED)
    ids = cast("list[Any]", value)
    if not ids:
        raise invalid("prompt", "prompt is empty; at least one token is needed")
    for index, token in enumerate(ids):
        if type(token) is not int or not 0 <= token < vocabulary_size:
            raise invalid(
                "prompt",
                f"prompt must be {_ALLOWED}: prompt[{index}] is {shown(token)}, "
                f"not a token id from 0 to {vocabulary_size - 1:,}",
            )
    return tuple(ids)
