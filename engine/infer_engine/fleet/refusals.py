"""Why the fleet does not take a request, as problem documents with both numbers in them."""

from collections.abc import Sequence

from infer_engine.fleet.endings import CUT, MESSAGES
from infer_engine.fleet.foresight import Late
from infer_engine.fleet.generation import GenerationSpec, Refusal
from infer_engine.protocol import Problem
from infer_engine.replica.upstream.constraints import CONTINUED
from infer_engine.replica.upstream.dialect import parameters
from infer_engine.runner.runner import RunnerInfo

#: When to ask again: after a step or two, or after a replica may have loaded.
QUEUE_RETRY_S = 1.0
NO_REPLICA_RETRY_S = 5.0
MOST_RETRY_S = 60.0


def check_fits(spec: GenerationSpec, info: RunnerInfo, emitted: int = 0) -> None:
    """Refusal 400 when no empty replica could ever run it: prompt, what is emitted and one token more exceed
    the pool, or prompt and max_tokens exceed the context."""
    prompt = len(spec.prompt)
    pool_tokens = info.kv_blocks * info.block_size
    wanted = prompt + spec.max_tokens
    if wanted > info.context_length:
        raise Refusal(
            Problem(
                status=400,
                code="never_fits",
                title="The request can never fit.",
                detail=(
                    f"prompt ({prompt} tokens) and max_tokens ({spec.max_tokens}) come to {wanted} tokens, "
                    f"the model's context holds {info.context_length}."
                ),
                field="max_tokens" if prompt < info.context_length else "prompt",
                numbers={
                    "prompt_tokens": prompt,
                    "max_tokens": spec.max_tokens,
                    "requested_tokens": wanted,
                    "context_length": info.context_length,
                },
            )
        )
    if prompt + emitted + 1 > pool_tokens:
        tokens = "prompt and its first token" if not emitted else f"prompt, {emitted} tokens and the next one"
        raise Refusal(
            Problem(
                status=400,
                code="never_fits",
                title="The request can never fit.",
                detail=(
                    f"the {tokens} need {prompt + emitted + 1} tokens of KV memory, "
                    f"a replica's pool holds {pool_tokens} ({info.kv_blocks} blocks of {info.block_size})."
                ),
                field="prompt",
                numbers={
                    "prompt_tokens": prompt,
                    "requested_tokens": prompt + emitted + 1,
                    "pool_tokens": pool_tokens,
                    "kv_blocks": info.kv_blocks,
                    "block_size": info.block_size,
                },
            )
        )


def check_fits_some(spec: GenerationSpec, infos: Sequence[RunnerInfo], emitted: int = 0) -> None:
    """Refusal 400 when none of those could ever run it. Where none has told anything yet, any may."""
    misfits = [misfit_of(spec, info, emitted) for info in infos]
    if misfits and all(misfits):
        raise next(each for each in misfits if each is not None)


def misfit_of(spec: GenerationSpec, info: RunnerInfo, emitted: int = 0) -> Refusal | None:
    """Why it could never run there: ``check_fits``, or a parameter that it cannot be asked for."""
    lacking = sorted(parameters(spec.sampling, emitted).intersection(info.lacks))
    if lacking == [CONTINUED]:
        return Refusal(
            Problem(status=503, code=CUT, title="The answer cannot go on.", detail=MESSAGES[CUT] + ".")
        )
    if lacking:
        name = lacking[0].split()[0]
        return Refusal(
            Problem(
                status=400,
                code="unsupported_parameter",
                title="A parameter is not supported.",
                detail=f"{lacking[0]} was given: {info.foreign} behind this gateway cannot be asked for it.",
                field=name,
            )
        )
    try:
        check_fits(spec, info, emitted)
    except Refusal as refusal:
        return refusal
    return None


def queue_full(waiting: int, most_waiting: int) -> Refusal:
    return Refusal(
        Problem(
            status=429,
            code="queue_full",
            title="The queue is full.",
            detail=f"{_waits(waiting)} on the ready replicas, {most_waiting} may.",
            numbers={"waiting": waiting, "most_waiting": most_waiting},
        ),
        retry_after_s=QUEUE_RETRY_S,
    )


def deadline_unreachable(late: Late, pace: float) -> Refusal:
    """``pace``: seconds of the fleet's clock in a real one."""
    return Refusal(
        Problem(
            status=429,
            code="deadline_unreachable",
            title="The deadline cannot be kept.",
            detail=(
                f"at this load the request would take about {late.expected_s:.1f} s, "
                f"{late.left_s:g} s were given."
            ),
            numbers={"expected_s": round(late.expected_s, 3), "deadline_s": late.left_s},
        ),
        retry_after_s=min(MOST_RETRY_S, max(QUEUE_RETRY_S, late.over_s / pace)),
    )


def held_full(held: int, most_held: int, *, draining: bool) -> Refusal:
    why = "every replica is draining" if draining else "no replica has loaded yet"
    return Refusal(
        Problem(
            status=503,
            code="draining" if draining else "no_ready_replica",
            title="No replica is ready.",
            detail=f"{why}, and {_are_held(held)} already, {most_held} may be.",
            numbers={"held": held, "most_held": most_held},
        ),
        retry_after_s=NO_REPLICA_RETRY_S,
    )


def _waits(count: int) -> str:
    return "1 request waits" if count == 1 else f"{count} requests wait"


def _are_held(count: int) -> str:
    return "1 request is held" if count == 1 else f"{count} requests are held"


def no_replica() -> Refusal:
    return Refusal(
        Problem(
            status=503,
            code="no_ready_replica",
            title="No replica is ready.",
            detail="every replica has failed.",
            numbers={"ready": 0},
        ),
        retry_after_s=NO_REPLICA_RETRY_S,
    )


def stopping() -> Refusal:
    return Refusal(
        Problem(
            status=503, code="draining", title="The server is stopping.", detail="it takes no new requests."
        ),
        retry_after_s=NO_REPLICA_RETRY_S,
    )
