"""What a runner is: it executes plans and knows nothing of queues."""

from typing import Protocol

from msgspec import Struct

from infer_engine.core.plan import Plan
from infer_engine.counts import AtLeastOne, Count, Rate
from infer_engine.runner.step_output import StepOutput


class RunnerInfo(Struct, frozen=True, kw_only=True):
    """What a loaded runner tells of itself."""

    model: str
    vocab_size: AtLeastOne
    context_length: AtLeastOne
    #: Blocks in the pool that the runner allocated.
    kv_blocks: AtLeastOne
    block_size: AtLeastOne
    #: 2 x layers x KV heads x head dim x bytes per element.
    kv_bytes_per_token: Count
    weight_bytes: Count
    device: str
    dtype: str
    simulated: bool = False
    #: Blocks of the pool in host memory that the runner allocated for swapping.
    host_blocks: Count = 0
    #: What computes what, where there was a choice: ``{"model": "kernels avx512vnni"}``.
    paths: dict[str, str] = {}
    #: Measured when the runner was made: tokens that prefill computes per second, bytes that move to or from
    #: host memory per second. None where it was not measured.
    prefill_tokens_per_s: Rate | None = None
    swap_bytes_per_s: Rate | None = None
    #: Of the GPU that it computes on, as NVML names it; None on a CPU.
    gpu_uuid: str | None = None
    #: Of its memory, by the data sheet; None where that is not known.
    bandwidth_bytes_per_s: Rate | None = None
    #: The product, where it is a server of somebody else: bytes, dtype and device are not known of it.
    foreign: str | None = None
    #: Parameters of a request that it cannot be asked for.
    lacks: tuple[str, ...] = ()
    #: So many run there at once by its own word, whatever the limits say; None: it does not tell.
    most_running: AtLeastOne | None = None


class Runner(Protocol):
    info: RunnerInfo

    def execute(self, plan: Plan) -> StepOutput:
        """Move and copy the blocks that the plan says, write the KV of every chunk's tokens into the pool,
        attend, and return the next token of each chunk that samples. Raises RuntimeError when the device
        fails; a single bad request never does."""
        ...

    def close(self) -> None:
        """Free what the runner holds."""
        ...
