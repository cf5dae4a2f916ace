"""The planner's answer: memory, sequences, times and cost, exact."""

import math
from dataclasses import dataclass
from typing import Literal

from infer_engine.planner import Deployment

from infer_console.planning.question import Question

#: How full the KV pool is: one sequence alone, up to either mark, or all of it; or KV not read at all.
Fill = Literal["weights alone", "one sequence", "batch mark", "admit mark", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """A decode step of equal sequences; a floor, which no real system reaches."""

    fill: Fill
    #: Share of the KV pool that may be in use; None where that is not what is asked.
    used_ratio: float | None
    sequences: int
    weight_bytes: int
    kv_read_bytes: int
    step_s: float
    price_per_million_tokens: float | None

    @property
    def tokens_per_s_per_sequence(self) -> float | None:
        """None where there is not one."""
        return 1 / self.step_s if self.sequences else None

    @property
    def tokens_per_s(self) -> float:
        return self.sequences / self.step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """One prompt of ``tokens``, alone: the longer of reading the weights and of computing, whose two parts
    grow with the prompt's length and with its square."""

    tokens: int
    prefill_s: float
    linear_s: float
    quadratic_s: float
    weights_read_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    question: Question
    without_gqa_kv_bytes_per_token: int
    #: How many times the KV without GQA would be.
    gqa_factor: float
    #: What weights and workspace leave of the memory; negative by as much as it lacks.
    kv_budget_bytes: int
    #: 0 where the model does not fit.
    kv_tokens: int
    prefill: Prefill
    #: Empty where not one sequence fits.
    decode: tuple[Decode, ...]
    #: Fewest sequences with which a decode step waits for FLOPs, without KV to read and at the context asked
    #: for; None for no batch at all.
    compute_bound_from_without_kv: int | None
    compute_bound_from: int | None
    #: Context from which no batch is large enough.
    memory_bound_context_tokens: float | None

    @property
    def fits(self) -> bool:
        return self.kv_budget_bytes > 0

    def decode_at(self, fill: Fill) -> Decode | None:
        return next((each for each in self.decode if each.fill == fill), None)


def answer(question: Question) -> Answer:
    """The model need not fit: all that does not depend on it is told anyhow."""
    deployment, context = question.deployment, question.context
    model = deployment.model
    without = model.without_gqa().kv_bytes_per_token
    left = deployment.memory_bytes - model.weight_bytes - deployment.activation_bytes
    tokens = max(0, left) // model.kv_bytes_per_token
    return Answer(
        question=question,
        without_gqa_kv_bytes_per_token=without,
        gqa_factor=without / model.kv_bytes_per_token,
        kv_budget_bytes=left,
        kv_tokens=tokens,
        prefill=_prefill(deployment, context),
        decode=_decode(question, tokens),
        compute_bound_from_without_kv=deployment.compute_bound_from(0),
        compute_bound_from=deployment.compute_bound_from(context),
        memory_bound_context_tokens=deployment.memory_bound_context(),
    )


def _prefill(deployment: Deployment, tokens: int) -> Prefill:
    linear_s, quadratic_s = deployment.prefill_parts_s(tokens)
    return Prefill(
        tokens=tokens,
        prefill_s=deployment.prefill_s(tokens),
        linear_s=linear_s,
        quadratic_s=quadratic_s,
        weights_read_s=deployment.model.weight_bytes / deployment.bandwidth_bytes_per_s,
    )


def _decode(question: Question, kv_tokens: int) -> tuple[Decode, ...]:
    full = kv_tokens // question.context
    if full == 0:
        return ()
    return (
        _filled(question, "weights alone", None, full),
        _filled(question, "one sequence", None, 1),
        *(
            _filled(question, fill, ratio, math.floor(kv_tokens * ratio / question.context))
            for fill, ratio in _marks(question)
        ),
    )


def _marks(question: Question) -> tuple[tuple[Fill, float], ...]:
    return ("batch mark", question.batch_mark), ("admit mark", question.admit_mark), ("full", 1.0)


def _filled(question: Question, fill: Fill, ratio: float | None, sequences: int) -> Decode:
    deployment = question.deployment
    context = 0 if fill == "weights alone" else question.context
    step_s = deployment.decode_step_s(sequences, context)
    return Decode(
        fill=fill,
        used_ratio=ratio,
        sequences=sequences,
        weight_bytes=deployment.model.weight_bytes,
        kv_read_bytes=sequences * context * deployment.model.kv_bytes_per_token,
        step_s=step_s,
        price_per_million_tokens=price_per_million(question, sequences / step_s),
    )


def price_per_million(question: Question, tokens_per_s: float | None, copies: int = 1) -> float | None:
    """Of generated tokens at that rate on so many copies of the model; None where the price or the rate is
    not known, or nothing is generated."""
    price = question.price_per_gpu_hour
    if price is None or not tokens_per_s:
        return None
    return price * question.deployment.gpus * copies / 3600 / tokens_per_s * 1e6
