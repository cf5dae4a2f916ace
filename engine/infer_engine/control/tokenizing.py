"""A sentence as tokens, for a person who wants to see what becomes of it: cut here, kept nowhere."""

from starlette.requests import Request
from starlette.responses import Response

from infer_engine.control.context import Context
from infer_engine.control.problems import json_response
from infer_engine.fleet.generation import refuse
from infer_engine.fleet.views import model_name
from infer_engine.protocol import MOST_SENTENCE, Tokenized, TokenPiece


class Tokenizing:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def tokenize(self, request: Request) -> Response:
        """Names of special tokens in the text are text. It is too short to hold anybody up."""
        text = request.query_params.get("text", "")
        if not 0 < len(text) <= MOST_SENTENCE:
            detail = f"must be 1 to {MOST_SENTENCE} characters, got {len(text)}."
            raise refuse(400, "invalid_field", "text does not fit.", detail, field="text")
        tokenizer = self._context.tokenizer
        pieces = [TokenPiece(each, tokenizer.token_bytes[each]) for each in tokenizer.encode(text)]
        name = model_name(self._context.fleet.settings.replica.model)
        return json_response(Tokenized(tokenizer=name, tokens=pieces))
