"""What a scheduler counted since it was made; only grows."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    steps: int = 0
    admissions: int = 0
    #: Admissions of requests that had run before.
    resumptions: int = 0
    #: Requests that joined the batch as a fork of one in it.
    forks: int = 0
    #: Blocks copied before a write.
    copied_blocks: int = 0
    #: Batch requests that waited so long that they are treated as interactive.
    aged: int = 0
    #: Requests handed over while they ran or waited, to go on elsewhere.
    released: int = 0
    #: Preemptions of batch to let an interactive request in.
    yields: int = 0
    preemptions: int = 0
    #: Preemptions that kept the KV in the host pool, and the blocks moved there and back.
    swaps: int = 0
    swapped_out_blocks: int = 0
    swapped_in_blocks: int = 0
    #: Tokens whose KV preemption threw away.
    redo_tokens: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    generated_tokens: int = 0
    #: Tokens looked up in the prefix cache at first admissions, and how many of them were found.
    prefix_queries_tokens: int = 0
    prefix_hit_tokens: int = 0
    #: The same of requests that had run before: they mostly find what they computed themselves.
    prefix_requery_tokens: int = 0
    prefix_rehit_tokens: int = 0
    #: Cached blocks reused for something else.
    evicted_blocks: int = 0
    #: By finish reason.
    finished: Counter[str] = field(default_factory=lambda: Counter[str]())
    #: By refusal code.
    refused: Counter[str] = field(default_factory=lambda: Counter[str]())
