"""From the logits of a step to its tokens: each request's processors, the choice, and the logprobs.

What the processors know of a request (token counts, the place in its grammar) follows from its tokens. It is
kept from step to step to save work, and made anew whenever it is not there: after preemption, on another
replica, or when the batch left the request out for a step. So what is kept is bounded by the batch.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from infer_engine.core.plan import Chunk
from infer_engine.core.request import Request
from infer_engine.model.constraint_limits import ConstraintError
from infer_engine.model.errors import ModelError
from infer_engine.model.grammar import Grammars, GrammarState, GrammarStateError
from infer_engine.model.logprobs import TokenLogprobs
from infer_engine.model.processors import Adjustments, Allowed, Ids, TokenCounts, bias_arrays
from infer_engine.model.sampler import is_drawn, sample
from infer_engine.model.sampling import Constraint, Sampling
from infer_engine.runner.step_output import StepOutput

log = logging.getLogger(__name__)

#: Code of a request's end when its constraint cannot be followed.
CONSTRAINT_FAILED = "constraint_failed"
#: A grammar that was accepted compiles in a fraction of a second, once the vocabulary is there.
COMPILE_TIMEOUT_S = 20.0


class ConstraintDesk:
    """Compiles grammars in a thread of its own, beside the model's work. ``make`` is called there, once, at
    the beginning."""

    def __init__(self, make: Callable[[], Grammars]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammars")
        self._grammars = self._thread.submit(make)

    def start(self, constraint: Constraint) -> "Future[GrammarState]":
        """Its result may also be a ConstraintError."""
        return self._thread.submit(self._start, constraint)

    def _start(self, constraint: Constraint) -> GrammarState:
        try:
            grammars = self._grammars.result()
        except (ModelError, ValueError) as error:
            raise ConstraintError(f"this replica cannot constrain output: {error}") from error
        return grammars.start(constraint)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


@dataclass(slots=True)
class _Known:
    """What is known of one request's tokens. ``counted`` are those of the output that ``counts`` has."""

    request: Request
    counts: TokenCounts | None = None
    counted: int = 0
    grammar: "Future[GrammarState] | None" = None
    stops: Ids | None = None


class TokenChooser:
    """``constraints`` None: the model's vocabulary is not known, so constrained requests end as failed."""

    def __init__(self, vocabulary: int, constraints: ConstraintDesk | None = None) -> None:
        self._vocabulary = vocabulary
        self._constraints = constraints
        self._known: dict[str, _Known] = {}

    def expect(self, chunks: list[Chunk]) -> None:
        """To be called before a step's logits are computed: forgets who is not in the step, and begins what
        takes time for those who came."""
        known = self._known
        self._known = {}
        for chunk in chunks:
            request = chunk.request
            if not _is_special(request.sampling):
                continue
            one = known.get(request.id)
            # The same object, not just the same id: what is known belongs to its tokens.
            if one is None or one.request is not request:
                one = _Known(request)
                if request.sampling.constraint is not None and self._constraints is not None:
                    one.grammar = self._constraints.start(request.sampling.constraint)
            self._known[request.id] = one

    def choose(self, logits: torch.Tensor, chunks: list[Chunk]) -> StepOutput:
        """``logits`` fp32 [S, vocab], which may be written to: one row for each of the ``chunks``. Of a
        device's, the rows of plain greedy requests stay there; the others are worked on here."""
        if logits.is_cpu:
            return self._choose(logits, chunks)
        apart = [row for row, chunk in enumerate(chunks) if not is_plain(chunk.request.sampling)]
        highest, rows = highest_and_rows(logits, apart)
        output = self._choose(rows, [chunks[row] for row in apart])
        for chunk, token in zip(chunks, highest, strict=True):
            output.tokens.setdefault(chunk.request.id, token)
        return output

    def _choose(self, logits: torch.Tensor, chunks: list[Chunk]) -> StepOutput:
        output = StepOutput()
        requests = [chunk.request for chunk in chunks]
        parameters: list[Sampling | None] = [request.sampling for request in requests]
        told = [row for row, one in enumerate(parameters) if one is not None and one.logprobs is not None]
        raw = logits[told].log_softmax(-1) if told else None
        self._adjust(logits, requests, output.errors)
        tokens = sample(logits, parameters, [chunk.start + chunk.count for chunk in chunks])
        for request, token in zip(requests, tokens, strict=True):
            output.tokens[request.id] = token
        if raw is not None:
            asked = [parameters[row] for row in told]
            chosen = [tokens[row] for row in told]
            for row, logprobs in zip(told, _logprobs(raw, asked, chosen), strict=True):
                output.logprobs[requests[row].id] = logprobs
        return output

    def close(self) -> None:
        self._known.clear()
        if self._constraints is not None:
            self._constraints.close()

    # --- inside --------------------------------------------------------------------------------------------

    def _adjust(self, logits: torch.Tensor, requests: list[Request], errors: dict[str, str]) -> None:
        adjustments = Adjustments(logits.shape[-1])
        any_special = False
        for row, request in enumerate(requests):
            known = self._known.get(request.id)
            if known is None:
                continue
            any_special = True
            try:
                self._adjust_row(adjustments, row, known, logits.shape[-1])
            except GrammarStateError as error:
                log.warning("request %s ends: its constraint cannot be followed: %s", request.id, error)
                errors[request.id] = CONSTRAINT_FAILED
        if any_special:
            adjustments.apply(logits)

    def _adjust_row(self, adjustments: Adjustments, row: int, known: _Known, width: int) -> None:
        request = known.request
        one: Sampling = request.sampling
        allowed = None if one.constraint is None else self._allowed(known, width)
        if len(request.output) < one.min_tokens:
            stops = self._stops(known)
            # Where the grammar has ended nothing else is left: the answer is complete before its minimum.
            if allowed is None or _has_others(allowed, stops):
                adjustments.ban(row, stops)
        if allowed is not None:
            adjustments.allow(row, allowed)
        biases = bias_arrays(one, self._vocabulary)
        if biases is not None:
            adjustments.bias(row, *biases)
        if one.penalizes:
            adjustments.penalize(row, one, self._counts(known))

    def _stops(self, known: _Known) -> Ids:
        if known.stops is None:
            ids = [id for id in known.request.stop_token_ids if 0 <= id < self._vocabulary]
            known.stops = np.array(sorted(ids), dtype=np.int64)
        return known.stops

    def _counts(self, known: _Known) -> TokenCounts:
        if known.counts is None:
            known.counts = TokenCounts(known.request.prompt, self._vocabulary)
        for token in known.request.output[known.counted :]:
            known.counts.add(token)
        known.counted = len(known.request.output)
        return known.counts

    def _allowed(self, known: _Known, width: int) -> Allowed:
        if known.grammar is None:
            raise GrammarStateError("this replica cannot constrain output")
        try:
            state = known.grammar.result(COMPILE_TIMEOUT_S)
        except ConstraintError as error:
            raise GrammarStateError(str(error)) from None
        except TimeoutError:
            raise GrammarStateError(f"it was not compiled within {COMPILE_TIMEOUT_S:g} s") from None
        for token in known.request.output[state.length :]:
            state.push(token)
        allowed = state.allowed()
        if len(allowed) == width:
            return allowed
        # Some models have more rows of logits than tokens.
        padded = np.zeros(width, dtype=np.bool_)
        padded[: len(allowed)] = allowed[:width]
        return padded


def highest_and_rows(logits: torch.Tensor, rows: list[int]) -> tuple[list[int], torch.Tensor]:
    """The ids of all rows' highest logits, the lowest of a tie, and copies of ``rows`` [R, vocab] on the CPU:
    one transfer, for each waits for the device. ``logits`` fp32 [S, vocab]."""
    count, vocabulary = logits.shape
    ids = logits.argmax(-1).to(torch.int32).view(torch.float32)
    # Row by row: a list of indices would be a transfer of its own.
    packed = torch.cat([ids, *(logits[row] for row in rows)]).cpu()
    return packed[:count].view(torch.int32).tolist(), packed[count:].view(len(rows), vocabulary)


def is_plain(one: Sampling | None) -> bool:
    """The token with the highest logit is all that it asks for."""
    return not (is_drawn(one) or _is_special(one) or (one is not None and one.logprobs is not None))


def _is_special(one: Sampling | None) -> bool:
    """Its logits are changed before a token is chosen."""
    return one is not None and (
        one.penalizes or bool(one.logit_bias) or one.min_tokens > 0 or one.constraint is not None
    )


def _has_others(allowed: Allowed, stops: Ids) -> bool:
    return int(allowed.sum()) > int(allowed[stops].sum())


def _logprobs(raw: torch.Tensor, parameters: list[Sampling | None], chosen: list[int]) -> list[TokenLogprobs]:
    """``raw`` [S, vocab]: log-softmax of the raw logits."""
    counts = [(one.logprobs or 0) if one is not None else 0 for one in parameters]
    own: list[float] = (
        raw.gather(-1, torch.tensor(chosen, device=raw.device).unsqueeze(-1)).squeeze(-1).tolist()
    )
    most = min(max(counts), raw.shape[-1])
    if not most:
        return [TokenLogprobs(logprob) for logprob in own]
    top = raw.topk(most, dim=-1)
    values: list[list[float]] = top.values.tolist()
    ids: list[list[int]] = top.indices.tolist()
    return [
        TokenLogprobs(own[row], ids[row][:count], values[row][:count]) for row, count in enumerate(counts)
    ]
