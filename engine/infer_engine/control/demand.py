"""What test traffic is asked for, checked: which profile, how it arrives, for how long."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from infer_engine.control import arrivals
from infer_engine.control.problems import echo
from infer_engine.control.profiles import PROFILES, Ask, Profile, asks, traced
from infer_engine.fleet.generation import misfit
from infer_engine.protocol import Inject, Tier, TraceRequest

MAX_RATE_PER_S = 500.0
MAX_DURATION_S = 600.0
MAX_CONCURRENCY = 4_096
DEFAULT_RATE_PER_S = 1.0
DEFAULT_DURATION_S = 60.0
#: Requests of a trace, and bytes of the command that brings it.
MOST_TRACE_REQUESTS = 10_000
MOST_TRACE_BYTES = 1024 * 1024
MOST_TOKENS = 10_000_000
MAX_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Exactly one of ``rate_per_s``, ``concurrency`` and ``trace`` is given."""

    profile: Profile
    seed: int
    duration_s: float
    #: Of all requests; None leaves it to the profile.
    tier: Tier | None = None
    rate_per_s: float | None = None
    concurrency: int | None = None
    trace: list[TraceRequest] | None = None

    @classmethod
    def of(cls, command: Inject) -> "Demand":
        """Refusal (422) for a profile that is none, or for what does not go together."""
        check_demand(command)
        trace = command.trace
        duration_s = command.duration_s
        if duration_s is None:
            duration_s = DEFAULT_DURATION_S if trace is None else trace[-1].arrival_s
        rate_per_s = command.rate_per_s
        if rate_per_s is None and command.concurrency is None and trace is None:
            rate_per_s = DEFAULT_RATE_PER_S
        return cls(
            profile=_profile(command.profile),
            seed=command.seed,
            duration_s=duration_s,
            tier=command.tier,
            rate_per_s=rate_per_s,
            concurrency=command.concurrency,
            trace=None if trace is None else [each for each in trace if each.arrival_s <= duration_s],
        )

    def arrivals(self) -> Iterator[float]:
        """Seconds from the beginning to each arrival; of a closed loop, which has none, nothing."""
        if self.trace is not None:
            return arrivals.recorded(self.trace)
        if self.rate_per_s is not None:
            return arrivals.open_loop(self.seed, self.rate_per_s, bursts=self.profile == "burst")
        return iter(())

    def asks(self, room_tokens: int) -> Iterator[Ask]:
        """The requests, the n-th for the n-th arrival."""
        if self.trace is not None:
            return traced(self.trace, self.seed)
        return asks(self.profile, self.seed, room_tokens)

    def describe(self) -> str:
        if self.trace is not None:
            return f"trace, {len(self.trace)} recorded requests over {self.duration_s:g} s"
        if self.concurrency is not None:
            return f"{self.profile}, {self.concurrency} in flight for {self.duration_s:g} s"
        return f"{self.profile}, {self.rate_per_s:g}/s for {self.duration_s:g} s"


def check_demand(command: Inject) -> None:
    """Refusal (422) naming the first field that does not fit, or does not fit the others."""
    if command.rate_per_s is not None:
        _check_above("rate_per_s", command.rate_per_s, MAX_RATE_PER_S)
    if command.duration_s is not None:
        _check_above("duration_s", command.duration_s, MAX_DURATION_S)
    if command.concurrency is not None and not 1 <= command.concurrency <= MAX_CONCURRENCY:
        raise misfit("concurrency", f"must be from 1 to {MAX_CONCURRENCY}, got {command.concurrency}.")
    if abs(command.seed) > MAX_SEED:
        raise misfit("seed", f"must be from {-MAX_SEED} to {MAX_SEED}.")
    if command.concurrency is not None and command.rate_per_s is not None:
        raise misfit("concurrency", "a closed loop has no rate: give rate_per_s or concurrency.")
    if (command.profile == "trace") != (command.trace is not None):
        raise misfit("trace", "the profile trace needs a trace, and the others take none.")
    if command.trace is not None:
        if command.rate_per_s is not None or command.concurrency is not None:
            raise misfit("trace", "a trace says when its requests arrive: no rate, no concurrency.")
        _check_trace(command.trace, command.duration_s)


def _check_trace(trace: list[TraceRequest], duration_s: float | None) -> None:
    if not 1 <= len(trace) <= MOST_TRACE_REQUESTS:
        raise misfit("trace", f"must have from 1 to {MOST_TRACE_REQUESTS} requests, got {len(trace)}.")
    before_s = 0.0
    for index, each in enumerate(trace):
        if not math.isfinite(each.arrival_s) or each.arrival_s < before_s:
            raise misfit(
                f"trace[{index}].arrival_s", f"must be at least {before_s:g}, got {each.arrival_s:g}."
            )
        for name, tokens in (("prompt_tokens", each.prompt_tokens), ("output_tokens", each.output_tokens)):
            if not 1 <= tokens <= MOST_TOKENS:
                raise misfit(f"trace[{index}].{name}", f"must be from 1 to {MOST_TOKENS}, got {tokens}.")
        before_s = each.arrival_s
        first = index - int(MAX_RATE_PER_S)
        if first >= 0 and each.arrival_s - trace[first].arrival_s < 1.0:
            raise misfit(f"trace[{index}].arrival_s", f"more than {MAX_RATE_PER_S:g} arrive within a second.")
    if duration_s is None and before_s > MAX_DURATION_S:
        raise misfit(
            "trace",
            f"it lasts {before_s:g} s, at most {MAX_DURATION_S:g} s are sent: give duration_s to send its "
            "beginning.",
        )
    if duration_s is not None and trace[0].arrival_s > duration_s:
        raise misfit("duration_s", f"nothing arrives before {trace[0].arrival_s:g} s, got {duration_s:g}.")


def _check_above(field: str, value: float, highest: float) -> None:
    if not math.isfinite(value) or value <= 0:
        raise misfit(field, f"must be above 0, got {value:g}.")
    if value > highest:
        raise misfit(field, f"must be from 0 to {highest:g}, got {value:g}.")


def _profile(name: str) -> Profile:
    for profile in PROFILES:
        if profile == name:
            return profile
    raise misfit("profile", f"allowed are {', '.join(PROFILES)}, got {echo(name)}.")
