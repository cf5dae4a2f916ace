"""Why a request is not taken at all. The server turns the code into an HTTP status; the numbers go to the
client."""

from typing import ClassVar

from infer_engine.core.blocks import BlockPool
from infer_engine.core.limits import Limits
from infer_engine.core.queues import WaitingQueue
from infer_engine.core.request import Request


class Refusal(Exception):
    """The request was not taken and nothing was left behind."""

    code: ClassVar[str] = "refused"

    def __init__(self, message: str, **numbers: float) -> None:
        super().__init__(message)
        self.numbers: dict[str, float] = numbers


class InvalidRequest(Refusal):
    """There is nothing to compute: no prompt, no token left to generate."""

    code = "invalid_request"


class NeverFits(Refusal):
    """Longer than the pool or the model's context, whatever else runs."""

    code = "never_fits"


class DuplicateId(Refusal):
    """A request of this id is waiting or running."""

    code = "duplicate_id"


class QueueFull(Refusal):
    code = "queue_full"


class AdmissionClosed(Refusal):
    """The replica drains."""

    code = "admission_closed"


def check_fits(request: Request, pool: BlockPool, context_length: int) -> None:
    """Raise InvalidRequest or NeverFits, with both numbers, where no pool state whatever would let it run."""
    prompt, done = len(request.prompt), len(request.output)
    if prompt == 0:
        raise InvalidRequest("the prompt is empty", prompt_tokens=0)
    if done >= request.max_tokens:
        raise InvalidRequest(
            f"max_tokens {request.max_tokens} leaves nothing to generate after {done} tokens",
            max_tokens=request.max_tokens,
            generated_tokens=done,
        )
    if request.state == "finished" or request.block_table or request.computed_tokens:
        raise InvalidRequest("the request has been computed before: make a new one of its tokens")
    if prompt + request.max_tokens > context_length:
        raise NeverFits(
            f"the prompt's {prompt} tokens and max_tokens {request.max_tokens} make "
            f"{prompt + request.max_tokens}, the context holds {context_length}",
            prompt_tokens=prompt,
            max_tokens=request.max_tokens,
            context_length=context_length,
        )
    needed = pool.blocks_for(prompt + done + 1)
    if needed > pool.total:
        raise NeverFits(
            f"{prompt + done} tokens and the next one need {needed} KV blocks, the pool has {pool.total}",
            needed_blocks=needed,
            total_blocks=pool.total,
        )


def check_queue(request: Request, waiting: WaitingQueue, limits: Limits) -> None:
    """Raise QueueFull, with the numbers, where the queue has no place for one more or for its tokens."""
    if len(waiting) >= limits.max_waiting:
        raise QueueFull(
            f"{len(waiting)} requests wait, {limits.max_waiting} may",
            waiting=len(waiting),
            max_waiting=limits.max_waiting,
        )
    tokens = waiting.tokens + request.total_tokens
    # An empty queue takes any request: one longer than the bound would never be taken otherwise.
    if len(waiting) and tokens > limits.max_waiting_tokens:
        raise QueueFull(
            f"{waiting.tokens} tokens wait, with this request's {request.total_tokens} it would be "
            f"{tokens}, {limits.max_waiting_tokens} may",
            waiting_tokens=waiting.tokens,
            request_tokens=request.total_tokens,
            max_waiting_tokens=limits.max_waiting_tokens,
        )
