"""A request inside one replica."""

from dataclasses import dataclass, field
from typing import Any

from infer_engine.protocol import FinishReason, RequestState, Tier


@dataclass(slots=True, eq=False)
class Account:
    """What one tenant was served in one tier and priority."""

    #: Tokens of prompts and outputs, or where it began.
    served: int = 0
    #: How many of its requests wait in that line.
    waiting: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """``computed_tokens`` counts tokens whose KV is in the pool; it chases ``len(prompt) + len(output)``, so
    prefill, chunk, decode and recompute are one case. ``sampling`` is opaque here: only the runner reads
    it."""

    id: str
    prompt: list[int]
    max_tokens: int
    arrival_s: float
    tenant: str = "default"
    #: Requests share cached blocks only with requests of the same salt.
    cache_salt: str = ""
    tier: Tier = "interactive"
    #: Higher is more urgent; test traffic is below zero. Decides who is admitted first and who is preempted
    #: first within a tier.
    priority: int = 0
    #: When it ends as ``deadline_exceeded``, wherever it is by then; None for never.
    deadline_s: float | None = None
    stop_token_ids: frozenset[int] = frozenset()
    sampling: Any = None
    synthetic: bool = False
    #: Generated tokens, those emitted on another replica before this one included.
    output: list[int] = field(default_factory=list)
    state: RequestState = "waiting"
    computed_tokens: int = 0
    #: Tokens taken from the prefix cache at the latest admission.
    cached_tokens: int = 0
    block_table: list[int] = field(default_factory=list)
    #: How many blocks of the table the prefix index has seen.
    indexed_blocks: int = 0
    #: While it waits after a swap: the blocks of the host pool that keep its KV, and of how many tokens.
    host_blocks: list[int] = field(default_factory=list[int])
    host_tokens: int = 0
    #: What the prefix index computed so far: the salt's hash, then one of each full block. Kept by it alone.
    hash_chain: list[bytes] = field(default_factory=list[bytes])
    #: It could not go on if it was taken out of the batch: whoever else has to leave, it does not.
    pinned: bool = False
    #: It waited so long in the batch tier that it is treated as interactive until it ends.
    aged: bool = False
    #: Who pays for what it is served. Kept by the queue.
    account: Account = field(default_factory=Account)
    #: When it was admitted last, its prompt was long: more was to compute than ``long_prefill_tokens``.
    long_prefill: bool = False
    #: The step after which it began to wait.
    queued_step: int = 0
    #: When it last began to wait here: its arrival, or its preemption.
    queued_s: float = 0.0
    #: Its first admission here.
    admitted_s: float | None = None
    preemptions: int = 0
    #: How often a later request was admitted while this one was the blocked head.
    passed: int = 0
    finish_reason: FinishReason | None = None
    error: str | None = None

    @property
    def lane(self) -> Tier:
        """The tier as which it is queued, admitted and preempted."""
        return "interactive" if self.aged else self.tier

    @property
    def total_tokens(self) -> int:
        """Tokens known so far: prompt and output."""
        return len(self.prompt) + len(self.output)

    def tokens(self, start: int, count: int) -> list[int]:
        """Tokens ``start .. start + count`` of prompt and output as one sequence."""
        prompt, end = len(self.prompt), start + count
        if end <= prompt:
            return self.prompt[start:end]
        return self.prompt[start:] + self.output[max(0, start - prompt) : end - prompt]

    @property
    def is_prefilling(self) -> bool:
        """More than the newest token lacks its KV: prefill, a chunk of it, or recompute."""
        return len(self.prompt) + len(self.output) - self.computed_tokens > 1
