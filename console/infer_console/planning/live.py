"""What the engine that is watched really does, for beside the theory. None where the picture has it not."""

from dataclasses import dataclass, replace

from infer_engine.planner import PlanError, model_named, parse_deployment
from infer_engine.protocol import Replica

from infer_console.planning.answer import Answer, price_per_million
from infer_console.planning.guess import guess_gpu, guess_model
from infer_console.state.picture import Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """One replica, or the fleet, whose figures are then sums (medians of the ITL)."""

    #: A replica's id; None for the fleet.
    replica: str | None
    model: str | None
    simulated: bool
    #: Copies of the model at work.
    copies: int | None
    running: int | None
    kv_bytes_per_token: int | None
    kv_pool_bytes: int | None
    #: The same in tokens, which is told where their size is not.
    kv_pool_tokens: int | None
    #: Of KV that is in use.
    kv_used_tokens: int | None
    #: The last step's, where it did nothing but decode; of the fleet none.
    decode_step_s: float | None
    itl_p50_s: float | None
    tokens_per_s: float | None
    #: What it runs on in the engine's words, and as a GPU that the planner knows.
    device: str | None = None
    gpu: str | None = None

    def floor_s(self, answer: Answer) -> float | None:
        """The step that theory allows for the batch that runs: the model and the GPUs as asked for, the
        sequences as they are, on every copy alike."""
        if not self.running or not self.copies or self.kv_used_tokens is None:
            return None
        deployment = answer.question.deployment
        sequences = self.running / self.copies
        context = self.kv_used_tokens / self.running
        model = deployment.model
        read_bytes = model.weight_bytes + sequences * context * model.kv_bytes_per_token
        flops = sequences * model.flops_of(1, context)
        return max(read_bytes / deployment.bandwidth_bytes_per_s, flops / deployment.flops_per_s)

    def is_of(self, answer: Answer) -> bool:
        """Whether it can be the model that is asked for, as far as its KV tells, else its name."""
        asked = answer.question.deployment.model
        if self.kv_bytes_per_token is not None:
            return self.kv_bytes_per_token == asked.kv_bytes_per_token
        guessed = guess_model(self.model) if self.model is not None else None
        return guessed is None or guessed == asked.name or model_named(guessed).layers == asked.layers

    def price_per_million(self, answer: Answer) -> float | None:
        return price_per_million(answer.question, self.tokens_per_s, self.copies or 1)


def live_figures(picture: Picture, replica: str | None) -> Live:
    """Of ``replica`` where it is there, else of the fleet."""
    fleet = picture.fleet
    simulation = fleet.simulation if fleet is not None else None
    told = _simulated_gpu(simulation.deployment) if simulation is not None else None
    found = _figures(picture, replica)
    return replace(found, gpu=told or (guess_gpu(found.device or "") or (None,))[0])


def _simulated_gpu(deployment: str) -> str | None:
    try:
        return parse_deployment(deployment).gpu.name
    except PlanError:
        return None


def _figures(picture: Picture, replica: str | None) -> Live:
    fleet = picture.fleet
    model, simulated = (fleet.model, fleet.simulated) if fleet is not None else (None, False)
    one = picture.replicas.get(replica) if replica is not None else None
    if one is not None:
        return _replica(one.status, model, simulated)
    totals = picture.totals
    at_work = [each.status for each in picture.replicas.values() if each.status.running is not None]
    sizes = {status.kv.bytes_per_token for status in at_work}
    return Live(
        replica=None,
        model=model,
        simulated=simulated,
        copies=len(at_work) or None,
        running=totals.running if totals is not None else None,
        kv_bytes_per_token=sizes.pop() if len(sizes) == 1 else None,
        kv_pool_bytes=_sum([_pool_bytes(status) for status in at_work]),
        kv_pool_tokens=_sum([_pool_tokens(status) for status in at_work]),
        kv_used_tokens=_sum([_used_tokens(status) for status in at_work]),
        decode_step_s=None,
        itl_p50_s=totals.itl_s.p50 if totals is not None else None,
        tokens_per_s=totals.tokens_per_s if totals is not None else None,
        device=next((status.device for status in at_work if status.device), None),
    )


def _replica(status: Replica, model: str | None, simulated: bool) -> Live:
    step = status.step
    decoded = step is not None and step.decode_tokens > 0 and step.prefill_tokens == 0
    return Live(
        replica=status.id,
        model=model,
        simulated=simulated or status.simulated,
        copies=1,
        running=status.running,
        kv_bytes_per_token=status.kv.bytes_per_token,
        kv_pool_bytes=_pool_bytes(status),
        kv_pool_tokens=_pool_tokens(status),
        kv_used_tokens=_used_tokens(status),
        decode_step_s=step.duration_s if step is not None and decoded else None,
        itl_p50_s=status.itl_s.p50,
        tokens_per_s=status.tokens_per_s,
        device=status.device,
    )


def _pool_tokens(status: Replica) -> int | None:
    kv = status.kv
    return kv.total * kv.block_size if kv.total is not None and kv.block_size is not None else None


def _pool_bytes(status: Replica) -> int | None:
    kv = status.kv
    if kv.total is None or kv.block_size is None or kv.bytes_per_token is None:
        return None
    return kv.total * kv.block_size * kv.bytes_per_token


def _used_tokens(status: Replica) -> int | None:
    kv = status.kv
    return kv.used * kv.block_size if kv.used is not None and kv.block_size is not None else None


def _sum(parts: list[int | None]) -> int | None:
    """None where there is nothing to add, or one of them is not known."""
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None
