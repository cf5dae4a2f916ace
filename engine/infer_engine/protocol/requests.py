"""Requests as rows of a list."""

from msgspec import Struct

from infer_engine.protocol.words import (
    PROTOCOL_VERSION,
    FinishReason,
    Phase,
    RequestState,
    Tier,
    WaitingReason,
)


class RequestRow(Struct, frozen=True, kw_only=True):
    """One request as an operator sees it. Ids are made by the server: ``[a-z0-9-]{1,64}``."""

    id: str
    tenant: str
    tier: Tier
    replica: str | None
    state: RequestState
    phase: Phase | None = None
    prompt_tokens: int
    generated_tokens: int = 0
    kv_blocks: int = 0
    age_s: float
    queue_wait_s: float | None = None
    ttft_s: float | None = None
    waiting_reason: WaitingReason | None = None
    #: The id of the request this one waits behind.
    behind: str | None = None
    synthetic: bool = False
    max_tokens: int | None = None
    #: Tokens whose KV is in the pool; below ``prompt_tokens`` while the prompt prefills.
    computed_tokens: int = 0
    cached_tokens: int = 0
    #: Blocks that admission needs, for a waiting request.
    needs_blocks: int | None = None
    #: Free blocks that admission could give now under the request's mark, for a waiting request.
    admissible_blocks: int | None = None
    last_itl_s: float | None = None
    preemptions: int = 0
    #: How often it went on at another place: another replica, or its own in another life.
    moves: int = 0
    finish_reason: FinishReason | None = None
    #: When it finished, in Unix seconds.
    ended_at: float | None = None
    #: The id the client sent (``X-Request-ID``): a label, untrusted text.
    client_id: str | None = None
    #: It must match something, and its server could not go on within that once it was broken off: it stays
    #: where it is until it ends, unless another can.
    bound: bool = False


class Requests(Struct, frozen=True, kw_only=True):
    version: int = PROTOCOL_VERSION
    simulated: bool = False
    requests: list[RequestRow]
    #: By state, how many more there are, where a limit was asked for.
    omitted: dict[RequestState, int] = {}
    #: Those that finished after the moment that was asked for, the latest first; as they ended.
    ended: list[RequestRow] = []
