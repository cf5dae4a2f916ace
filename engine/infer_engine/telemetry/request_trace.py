"""One request as a trace: its timeline as spans, in plain values.

Names and attributes are those of OpenTelemetry's semantic conventions for generative AI where there is one,
and ``infer.*`` otherwise. Never prompts, answers, tenants or anything else that a client wrote.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infer_engine.fleet.generation import Generation
from infer_engine.protocol import Timeline, TimelineEntry
from infer_engine.telemetry.gen_ai import OTHER, PROVIDER

Value = str | int | float | bool | Sequence[str]

#: What the request does from a moment of this kind on.
_STAGES = {
    "arrived": "receive",
    "received": "authenticate",
    "authenticated": "tokenize",
    "tokenized": "queue",
    "held": "queue",
    "queued": "queue",
    "admitted": "prefill",
    "resumed": "resume",
    "first_token": "decode",
    "preempted": "queue",
}


@dataclass(frozen=True, slots=True)
class Moment:
    name: str
    #: Unix seconds.
    at: float
    attributes: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Span:
    """From ``began_at`` to ``ended_at``, Unix seconds."""

    name: str
    began_at: float
    ended_at: float
    attributes: dict[str, Value] = field(default_factory=dict[str, Value])


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """``whole`` spans all of ``stages``, which follow each other without a gap; ``moments`` are the
    timeline's entries as they are. ``error`` is a stable code, None where the request succeeded."""

    whole: Span
    stages: list[Span]
    moments: list[Moment]
    error: str | None


def trace_of(generation: Generation, timeline: Timeline, model: str) -> RequestTrace:
    """Of one that has ended."""
    moments = [
        Moment(entry.kind, timeline.began_at + entry.at_s, _of_entry(entry)) for entry in timeline.entries
    ]
    stages = _stages(moments)
    ended_at = stages[-1].ended_at if stages else timeline.began_at
    error = None
    if generation.finish_reason in ("error", "cancelled"):
        error = generation.error_code or OTHER
    return RequestTrace(
        whole=Span(
            f"{generation.spec.operation} {model}",
            timeline.began_at,
            max([ended_at, *(moment.at for moment in moments)]),
            _of_request(generation, timeline, model, error),
        ),
        stages=stages,
        moments=moments,
        error=error,
    )


def _of_request(
    generation: Generation, timeline: Timeline, model: str, error: str | None
) -> dict[str, Value]:
    spec = generation.spec
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": spec.operation,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.response.id": generation.id,
        "gen_ai.request.max_tokens": spec.max_tokens,
        "gen_ai.usage.input_tokens": len(spec.prompt),
        "gen_ai.usage.output_tokens": len(generation.emitted),
        "gen_ai.response.finish_reasons": [str(generation.finish_reason)],
        "infer.tier": spec.tier,
        "infer.streams": spec.streams,
        "infer.preemptions": generation.preemptions,
        "infer.moves": generation.moves,
        "infer.timeline.omitted": timeline.omitted,
        "infer.simulated": timeline.simulated,
    }
    if generation.replica is not None:
        attributes["infer.replica"] = generation.replica
    if error is not None:
        attributes["error.type"] = error
    return attributes


def _of_entry(entry: TimelineEntry) -> dict[str, Value]:
    known: Mapping[str, Value | None] = {
        "infer.replica": entry.replica,
        "infer.reason": entry.reason,
        "infer.tokens": entry.tokens,
        "infer.blocks": entry.blocks,
        "infer.omitted": entry.omitted or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _stages(moments: list[Moment]) -> list[Span]:
    """Each stage lasts until the next one begins; moments that change nothing about it are in it."""
    spans: list[Span] = []
    stage, since, replica = None, 0.0, None
    for moment in moments:
        begins = "ended" if moment.name == "finished" else _STAGES.get(moment.name)
        if begins is None:
            replica = moment.attributes.get("infer.replica", replica)
            continue
        if begins != stage:
            if stage is not None:
                spans.append(
                    Span(stage, since, moment.at, {} if replica is None else {"infer.replica": replica})
                )
            stage, since = begins, moment.at
        replica = moment.attributes.get("infer.replica")
        if stage == "ended":
            break
    return spans
