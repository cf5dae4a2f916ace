"""What the scheduler decided for one step, and what came of it. The runner executes a plan as it stands."""

from dataclasses import dataclass, field

from infer_engine.core.request import Request
from infer_engine.protocol import FinishReason, PreemptMode


@dataclass(slots=True)
class Chunk:
    """Compute the KV of ``request``'s tokens ``start .. start + count`` (prompt, then output). When
    ``samples`` is set the chunk reaches the newest known token and the runner returns the next one.
    ``block_table`` covers ``start + count`` tokens."""

    request: Request
    start: int
    count: int
    samples: bool


@dataclass(slots=True)
class Admission:
    id: str
    blocks: int
    waited_s: float
    #: True when the request had run before and was preempted.
    resumed: bool
    #: Tokens that are not computed because the prefix cache has them.
    cached_tokens: int = 0


@dataclass(slots=True)
class Preemption:
    id: str
    mode: PreemptMode
    freed_blocks: int
    #: Tokens whose KV was given up: what the prefix cache does not keep of it must be computed again.
    redo_tokens: int
    #: Somebody asked for it; no want of memory did.
    asked: bool = False


@dataclass(slots=True)
class Finish:
    id: str
    reason: FinishReason
    freed_blocks: int
    generated_tokens: int
    error: str | None = None
    #: Of an error: the reason that a server of others gave for it.
    said: str | None = None


@dataclass(slots=True)
class Plan:
    """Chunks in batch order. ``finished`` holds requests that ended while planning (``kv_exhausted``,
    ``deadline_exceeded``).

    Before anything is computed the runner deals with whole blocks, in this order: ``swap_out`` moves (KV
    block, host block) to the host; ``copies`` (from, to) copies, as if all were read before any is written;
    ``swap_in`` moves (host block, KV block) back. What one of them reads may be written to by a later one, or
    by what is computed in this very step."""

    step: int
    chunks: list[Chunk] = field(default_factory=list)
    admitted: list[Admission] = field(default_factory=list)
    preempted: list[Preemption] = field(default_factory=list)
    finished: list[Finish] = field(default_factory=list)
    #: How many of the preempted, the last of them, made room for interactive requests that wait.
    yielded: int = 0
    decode_tokens: int = 0
    prefill_tokens: int = 0
    swap_out: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    swap_in: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    copies: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    #: Requests that joined the batch since the last step as a fork of one in it; not in ``admitted``.
    forked: list[Admission] = field(default_factory=list[Admission])
    #: Cached blocks that this step reuses for something else.
    evicted: list[int] = field(default_factory=list[int])
    #: What they were found by.
    evicted_hashes: list[bytes] = field(default_factory=list[bytes])
    #: Tokens looked up in the prefix cache by those admitted for the first time, and how many were found.
    prefix_queries_tokens: int = 0
    prefix_hit_tokens: int = 0

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        if chunk.request.is_prefilling:
            self.prefill_tokens += chunk.count
        else:
            self.decode_tokens += chunk.count

    def extend(self, chunk: Chunk, tokens: int, *, samples: bool) -> None:
        """More of a prompt of which ``chunk`` was added."""
        chunk.count += tokens
        chunk.samples = samples
        self.prefill_tokens += tokens
