"""What a runner made of a plan."""

from dataclasses import dataclass, field

from infer_engine.model.logprobs import TokenLogprobs


@dataclass(frozen=True, slots=True)
class StepOutput:
    """By request id: the next token of each chunk that samples, the logprobs of those that asked for them,
    and the code of the error with which a request has to end instead of taking its token."""

    tokens: dict[str, int] = field(default_factory=dict[str, int])
    logprobs: dict[str, TokenLogprobs] = field(default_factory=dict[str, TokenLogprobs])
    errors: dict[str, str] = field(default_factory=dict[str, str])
