"""Which replicas can serve a request at all: those of ours are alike, servers of others lack this or that."""

from collections.abc import Iterable

from infer_engine.fleet.endings import CUT
from infer_engine.fleet.generation import GenerationSpec
from infer_engine.fleet.refusals import misfit_of
from infer_engine.fleet.tracked import Tracked
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.upstream.constraints import CONTINUED


def can_serve(handle: ReplicaHandle, spec: GenerationSpec, emitted: int = 0) -> bool:
    """Of one that has not told what it is, it is not known yet."""
    return handle.info is None or misfit_of(spec, handle.info, emitted) is None


def can_go_on(handle: ReplicaHandle, request: Tracked) -> bool:
    return can_serve(handle, request.generation.spec, len(request.generation.emitted))


def pins(handle: ReplicaHandle, request: Tracked) -> bool:
    """It must match something, and nobody goes on within that there once it was broken off."""
    constrained = request.generation.spec.sampling.constraint is not None
    return constrained and handle.info is not None and CONTINUED in handle.info.lacks


def starts_over(request: Tracked, code: str) -> bool:
    """What is refused with this code where it was broken off can be had whole from its prompt, as nothing of
    it was sent to its client."""
    return code == CUT and request.generation.may_start_over


def is_bound(request: Tracked, others: Iterable[ReplicaHandle]) -> bool:
    """It is not to be taken from where it is: its client has the beginning of an answer that must match
    something, and none of the others can go on within that."""
    generation = request.generation
    if generation.spec.sampling.constraint is None or not generation.emitted or generation.may_start_over:
        return False
    return not any(can_go_on(other, request) for other in others)
