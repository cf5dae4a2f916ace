"""What an injection will be for this fleet, in words and numbers, before it is sent."""

from itertools import islice

from infer_engine.control.demand import MAX_DURATION_S, MAX_RATE_PER_S, Demand
from infer_engine.control.guard_rail import suffering
from infer_engine.control.load import Load, Pace, Size, predict_load
from infer_engine.control.profiles import SHARED_DOCUMENTS
from infer_engine.control.prompts import Prompts
from infer_engine.fleet.fleet import Fleet
from infer_engine.planner import Deployment
from infer_engine.protocol import Effect, Totals

#: Requests that are made up to know how large they are.
SAMPLE = 64
KV_HIGH = 0.8


def forecast(
    fleet: Fleet, prompts: Prompts, demand: Demand, *, room_tokens: int, most_in_flight: int
) -> Effect:
    totals = fleet.status().totals
    runners = fleet.capacity.runners()
    sizes = _sizes(prompts, demand, room_tokens, cached=fleet.settings.replica.prefix_cache)
    rate_per_s = demand.rate_per_s
    if demand.trace is not None:
        rate_per_s = len(demand.trace) / max(demand.duration_s, 1.0)
        most_in_flight = min(most_in_flight, len(demand.trace))
    load = predict_load(
        sizes,
        rate_per_s=rate_per_s,
        concurrency=demand.concurrency,
        replicas=max(1, len(runners)),
        block_size=runners[0].block_size if runners else 16,
        pace=_pace(fleet, totals),
        most_in_flight=most_in_flight,
        shared_documents=SHARED_DOCUMENTS,
    )
    requests = float(len(demand.trace)) if demand.trace is not None else None
    if requests is None and load.rate_per_s is not None:
        requests = load.rate_per_s * demand.duration_s
    tier = demand.tier or ("batch" if demand.profile == "batch-backfill" else "interactive")
    admissible = fleet.capacity.admissible_blocks(tier)
    return Effect(
        summary=[
            _what(demand, requests, most_in_flight),
            _tokens(load, requests),
            _kv(load, admissible, totals.kv_used_ratio),
            "tagged synthetic, first to be preempted, held back while real requests wait; "
            "stops by itself when they suffer",
        ],
        numbers={
            "requests": requests,
            "rate_per_s": load.rate_per_s,
            "duration_s": demand.duration_s,
            "prompt_tokens": None if requests is None else requests * load.prompt_tokens,
            "output_tokens": None if requests is None else requests * load.output_tokens,
            "in_flight": load.in_flight,
            "kv_blocks": load.kv_blocks,
            "kv_admissible_blocks": float(admissible),
            "prefill_share": load.prefill_share,
            "kv_used_ratio": totals.kv_used_ratio,
            "max_rate_per_s": MAX_RATE_PER_S,
            "max_duration_s": MAX_DURATION_S,
        },
        warnings=_warnings(fleet, demand, load, totals, admissible),
    )


def _sizes(prompts: Prompts, demand: Demand, room_tokens: int, *, cached: bool) -> list[Size]:
    if demand.trace is not None:
        return [Size(each.prompt_tokens, each.output_tokens) for each in demand.trace]
    shared = demand.profile in ("shared-prefix", "mixed") and cached
    return [
        Size(
            prompt_tokens=len(prompts.build(ask)),
            output_tokens=ask.max_tokens,
            # Only shared documents have numbers beyond 32 bits.
            shared_tokens=ask.document_tokens if shared and ask.document >> 32 else 0,
        )
        for ask in islice(demand.asks(room_tokens), SAMPLE)
    ]


def _pace(fleet: Fleet, totals: Totals) -> Pace | None:
    """Of a replica that is simulated what it computes with; of others what was measured, where it was."""
    deployment = fleet.settings.deployment
    limits = next(iter(fleet.limits.now().replicas.values()), {})
    if deployment is not None:
        budget = limits.get("token_budget", 2_048)
        return Pace(
            prefill_s=lambda tokens: _chunked_s(deployment, tokens, budget), step_s=deployment.decode_step_s
        )
    rates = [each.prefill_tokens_per_s for each in fleet.capacity.runners() if each.prefill_tokens_per_s]
    itl_s = totals.itl_s.p50
    if not rates or itl_s is None:
        return None
    tokens_per_s = sum(rates) / len(rates)
    return Pace(prefill_s=lambda tokens: tokens / tokens_per_s, step_s=lambda _sequences, _context: itl_s)


def _chunked_s(deployment: Deployment, tokens: int, budget: int) -> float:
    return sum(
        deployment.step_s([(start, min(budget, tokens - start))]) for start in range(0, tokens, budget)
    )


def _what(demand: Demand, requests: float | None, most_in_flight: int) -> str:
    about = "as many requests as are answered" if requests is None else f"about {_requests(requests, demand)}"
    how = "open loop" if demand.concurrency is None else f"closed loop, {demand.concurrency} in flight"
    if demand.rate_per_s is not None:
        how += f", {demand.rate_per_s:g}/s"
    if demand.trace is not None:
        how = "as recorded"
    tier = demand.tier or ("as recorded" if demand.trace is not None else "of the profile")
    return f"{about} over {demand.duration_s:g} s ({how}, tier {tier}), at most {most_in_flight} at once"


def _requests(count: float, demand: Demand) -> str:
    shown = f"{count:.0f}"
    return f"1 {demand.profile} request" if shown == "1" else f"{shown} {demand.profile} requests"


def _tokens(load: Load, requests: float | None) -> str:
    each = f"{load.prompt_tokens:,.0f} prompt and up to {load.output_tokens:,.0f} answer tokens each"
    if requests is None:
        return each
    return f"{each}: {requests * load.prompt_tokens:,.0f} and {requests * load.output_tokens:,.0f} in all"


def _kv(load: Load, admissible: int, used: float | None) -> str:
    if load.in_flight is None or load.kv_blocks is None:
        return "how many will be in flight, and hold how much KV, is not known before requests were answered"
    now = "" if used is None else f"; {used:.0%} of the KV is used now"
    return (
        f"about {load.in_flight:.1f} in flight, holding {load.kv_blocks:,.0f} KV blocks of {admissible:,} "
        f"that are admitted{now}"
    )


def _warnings(fleet: Fleet, demand: Demand, load: Load, totals: Totals, admissible: int) -> list[str]:
    warnings: list[str] = []
    used = totals.kv_used_ratio if fleet.live_users() else None
    because = suffering(fleet.rows(None, "waiting"), None, None, used)
    if because is not None:  # it is started all the same: whom it would disturb may be gone by then
        warnings.append(f"it would end at once: {because.removeprefix('guard rail: ')}")
    if fleet.pace != 1.0:
        real_s = demand.duration_s / fleet.pace
        warnings.append(f"simulated seconds are meant: {demand.duration_s:g} of them take {real_s:g} s")
    # A recording may come at once and be over soon: on the mean of its seconds that looks like too much.
    if load.saturated and demand.trace is None:
        warnings.append("it comes faster than it can be served: what may not be sent when it is due is not")
    if load.kv_blocks is not None and load.kv_blocks > admissible:
        warnings.append("it needs more KV than is admitted: expect waiting")
    if totals.kv_used_ratio is not None and totals.kv_used_ratio > KV_HIGH:
        warnings.append(f"KV use is {totals.kv_used_ratio:.0%} already: expect waiting and preemptions")
    if totals.waiting:
        warnings.append(
            "1 request waits already" if totals.waiting == 1 else f"{totals.waiting} requests wait already"
        )
    return warnings
