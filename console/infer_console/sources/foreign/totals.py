"""Several watched servers in one line: sums, KV by capacity, percentiles of merged buckets."""

from collections.abc import Iterable, Sequence

from infer_engine.foreign.estimate import alike, merged_unlike, percentiles, queue_wait
from infer_engine.foreign.page import Buckets
from infer_engine.protocol import Fleet, Replica, Totals

from infer_console.sources.foreign.member import Member

HISTOGRAMS = ("ttft", "itl", "queue")


def totals_of(members: Sequence[Member], replicas: Sequence[Replica]) -> Totals:
    """``replicas`` are all rows, ``members`` those servers that answer: figures are of these."""
    reasons: dict[str, int] = {}
    finished: dict[str, int] = {}
    each = [member.status.totals for member in members if member.status is not None]
    for totals in each:
        _add(reasons, totals.waiting_reasons)
        _add(finished, totals.finished)
    rates = [totals.tokens_per_s for totals in each if totals.tokens_per_s is not None]
    return Totals(
        replicas=len(replicas),
        ready=sum(replica.state == "ready" for replica in replicas),
        running=_sum(totals.running for totals in each),
        waiting=_sum(totals.waiting for totals in each),
        kv_used_ratio=_kv_ratio(replicas),
        tokens_per_s=sum(rates) if rates else None,
        queue_wait_s=queue_wait(merged_unlike(_observed(members, "queue"))),
        ttft_s=percentiles(merged_unlike(_observed(members, "ttft"))),
        itl_s=percentiles(merged_unlike(_observed(members, "itl"))),
        preemptions=_sum(totals.preemptions for totals in each),
        waiting_reasons=reasons,
        finished=finished,
    )


def fleet_of(name: str, members: Sequence[Member]) -> Fleet:
    told = [member.status.fleet for member in members if member.status is not None]
    contexts = {fleet.context_length for fleet in told}
    return Fleet(
        name=name,
        model=_listed(fleet.model for fleet in told) or "–",
        version=_listed(fleet.version for fleet in told),
        context_length=contexts.pop() if len(contexts) == 1 else None,
    )


def unlike(members: Iterable[Member]) -> bool:
    """Whether the servers' histograms have different bounds, so that merged they are estimates of
    estimates."""
    readings = [member.reading for member in members if member.live and member.reading is not None]
    return not all(
        alike(
            [
                counts.histograms.get(name, {})
                for reading in readings
                for counts in (reading.shared, *(engine.counts for engine in reading.engines))
            ]
        )
        for name in HISTOGRAMS
    )


def _observed(members: Sequence[Member], name: str) -> list[Buckets]:
    found = [
        member.watching.observed(name, member.reading) for member in members if member.reading is not None
    ]
    return [buckets for buckets in found if buckets]


def _kv_ratio(replicas: Sequence[Replica]) -> float | None:
    """By what each pool can hold, in tokens: of those pools that are told."""
    known = [
        (each.kv.used * each.kv.block_size, each.kv.total * each.kv.block_size)
        for each in replicas
        if each.kv.used is not None and each.kv.total and each.kv.block_size
    ]
    return sum(used for used, _ in known) / sum(total for _, total in known) if known else None


def _add(sums: dict[str, int], more: dict[str, int]) -> None:
    for name, number in more.items():
        sums[name] = sums.get(name, 0) + number


def _sum(values: Iterable[int | None]) -> int | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None


def _listed(words: Iterable[str | None]) -> str | None:
    return ", ".join(dict.fromkeys(word for word in words if word))[:200] or None
