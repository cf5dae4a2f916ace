"""From a valid request to a generation: tokenized, measured, given to the fleet, or refused with the
numbers."""

from dataclasses import replace

from msgspec import structs

from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, GenerationSpec, Refusal
from infer_engine.fleet.timeline import GatewayMoments
from infer_engine.gateway.chat_request import ChatRequest
from infer_engine.gateway.completion_request import CompletionRequest
from infer_engine.gateway.encoding import EncodingDesk
from infer_engine.gateway.errors import ApiError, invalid, refused
from infer_engine.gateway.identity import Identity
from infer_engine.gateway.params import check_totals
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.model.randomness import choice_seed
from infer_engine.model.tokenizer import Tokenizer

Ask = ChatRequest | CompletionRequest


class Intake:
    def __init__(
        self,
        fleet: Fleet,
        tokenizer: Tokenizer,
        context_length: int,
        desk: EncodingDesk,
        settings: GatewaySettings,
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._tokenizer = tokenizer
        self._context_length = context_length
        self._desk = desk
        special = set(tokenizer.special_ids.values())
        longest = max(
            (len(text) for id, text in enumerate(tokenizer.token_bytes) if id not in special), default=1
        )  #: A text of more characters has more tokens than the context, whatever it says.
        self._most_chars = context_length * longest
        self._pool_tokens: int | None = None

    async def take(
        self, ask: Ask, identity: Identity, *, arrived_s: float, received_s: float, authenticated_s: float
    ) -> list[Generation]:
        """One generation for each choice that is asked for. The moments are of the fleet's clock. Raise
        ApiError: 400 when it can never fit (with both numbers), 429 and 503 when it cannot be taken now."""
        if ask.chars > self._most_chars:
            raise _too_long(
                ask,
                f"the prompt has {ask.chars:,} characters; the model's context holds "
                f"{self._context_length:,} tokens, at most {self._most_chars:,} characters",
            )
        tokenizing_s = self._fleet.now()
        prompt = await self._desk.run(lambda: ask.encode(self._tokenizer), ask.chars)
        moments = GatewayMoments(
            arrived_s, received_s, authenticated_s, tokenizing_s, self._fleet.now(), len(prompt)
        )
        params = ask.params
        max_tokens = self._max_tokens(ask, len(prompt))
        if params.max_tokens is None:
            check_totals(params.choices, max_tokens, params.sampling.logprobs, self._settings)
        ends = frozenset[int]() if params.ignore_eos else self._tokenizer.stop_ids
        spec = GenerationSpec(
            prompt=tuple(prompt),
            max_tokens=max_tokens,
            sampling=params.sampling,
            stop_token_ids=tuple(sorted(ends.union(params.stop_token_ids))),
            tenant=identity.tenant,
            tier=identity.tier_for(ask.params),
            operation="chat" if isinstance(ask, ChatRequest) else "text_completion",
            client_id=identity.label_for(ask.params),
            deadline_s=identity.deadline_for(ask.params),
            moments=moments,
            streams=params.stream,
            trace_parent=identity.trace_parent,
        )
        try:
            return self._fleet.submit_choices([_with_seed_of(spec, index) for index in range(params.choices)])
        except Refusal as refusal:
            raise refused(refusal, ask.prompt_field, params.constraint_field) from None

    def _max_tokens(self, ask: Ask, prompt_tokens: int) -> int:
        """What was asked for; unasked, what the context and an empty pool have room for."""
        asked, context = ask.params.max_tokens, self._fleet.capacity.context_length() or self._context_length
        if prompt_tokens == 0:
            raise invalid(ask.prompt_field, "the prompt is empty; at least one token is needed")
        wanted = asked or 1
        if prompt_tokens + wanted > context:
            raise _too_long(
                ask if prompt_tokens >= context else None,
                f"prompt {prompt_tokens:,} + max_tokens {wanted:,} = {prompt_tokens + wanted:,} tokens; "
                f"the model's context holds {context:,}",
            )
        return asked or max(1, min(context, self._pool() or context) - prompt_tokens)

    def _pool(self) -> int | None:
        """Tokens that the smallest pool holds; None until every replica has loaded once. Pools keep their
        size."""
        if self._pool_tokens is None:
            kvs = [replica.kv for replica in self._fleet.status().replicas]
            sizes = [kv.total * kv.block_size for kv in kvs if kv.total and kv.block_size]
            if len(sizes) < len(kvs) or not sizes:
                return min(sizes, default=None)
            self._pool_tokens = min(sizes)
        return self._pool_tokens


def _with_seed_of(spec: GenerationSpec, choice: int) -> GenerationSpec:
    """The first choice is what it would be alone."""
    if choice == 0:
        return spec
    sampling = structs.replace(spec.sampling, seed=choice_seed(spec.sampling.seed, choice))
    return replace(spec, sampling=sampling)


def _too_long(ask: Ask | None, message: str) -> ApiError:
    """``ask`` when the prompt alone is to blame."""
    param = "max_tokens" if ask is None else ask.prompt_field
    return ApiError(400, message, param=param, code="context_length_exceeded")
