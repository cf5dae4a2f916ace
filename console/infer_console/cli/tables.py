"""The documents as tables for people."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from infer_engine.protocol import Alarm, BlockRun, Blocks, Event, Operation, Replica, RequestRow, Status
from msgspec.structs import replace

from infer_console.cli.output import print_line, print_table
from infer_console.state.series import kv_used_ratio
from infer_console.view.format import UNKNOWN, age, clock, count, milliseconds, percent, rate, seconds
from infer_console.view.simulated import simulated_mark

T = TypeVar("T")


def print_status(status: Status) -> None:
    fleet, totals = status.fleet, status.totals
    mark = simulated_mark(fleet)
    simulated = f"  {mark}" if mark else ""
    print_line(f"{fleet.name}{simulated}  {fleet.model}  gateway {fleet.gateway.url or UNKNOWN}")
    print_line(
        f"{totals.ready} of {totals.replicas} ready"
        f"  running {count(totals.running)}  waiting {count(totals.waiting)}"
        f"  KV {_ratio(totals.kv_used_ratio)}  {rate(totals.tokens_per_s)} tok/s"
        f"  TTFT p50 {seconds(totals.ttft_s.p50)} p99 {seconds(totals.ttft_s.p99)} s"
        f"  ITL p50 {milliseconds(totals.itl_s.p50)} p99 {milliseconds(totals.itl_s.p99)} ms"
    )
    reasons = ", ".join(
        f"{reason} {waiting}" for reason, waiting in totals.waiting_reasons.items() if waiting
    )
    if reasons:
        print_line(f"waiting because: {reasons}")
    if fleet.traffic.running:
        traffic = fleet.traffic
        print_line(f"test traffic: {traffic.profile}, {traffic.sent} sent, {traffic.in_flight} in flight")
    for alarm in status.alarms:
        print_line(alarm_words(alarm))
    print()
    print_replicas(status.replicas)


def _ratio(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{percent(ratio)}%"


def alarm_words(alarm: Alarm) -> str:
    replica = f" {alarm.replica}" if alarm.replica else ""
    action = f"  -> {alarm.action}" if alarm.action else ""
    return f"{alarm.severity}:{replica} {alarm.text}{action}"


def _state(replica: Replica) -> str:
    if replica.load_progress is not None and replica.state in ("starting", "restarting"):
        return f"{replica.state} {replica.load_progress:.0%}"
    return replica.state


def _why(row: RequestRow) -> str:
    if row.waiting_reason is None:
        return ""
    behind = f" {row.behind}" if row.behind else ""
    needs = ""
    if row.needs_blocks is not None and row.admissible_blocks is not None:
        needs = f", needs {row.needs_blocks} blocks, {row.admissible_blocks} admissible"
    return f"{row.waiting_reason}{behind}{needs}"


def _done(operation: Operation) -> str:
    return "" if operation.total is None else f"{count(operation.done)}/{count(operation.total)}"


def print_simulated(simulated: bool) -> None:
    """Before a table that does not say it itself."""
    if simulated:
        print_line("SIMULATED: no model computes, and durations are simulated seconds")


#: Head and cell of each column. A head that ends in ``>`` has its column aligned to the right.
REPLICA_COLUMNS: tuple[tuple[str, Callable[[Replica], object]], ...] = (
    ("ID", lambda replica: replica.id),
    ("STATE", _state),
    ("HEALTH", lambda replica: replica.health or UNKNOWN),
    ("RUN>", lambda replica: count(replica.running)),
    ("WAIT>", lambda replica: count(replica.waiting)),
    ("OLDEST>", lambda replica: age(replica.queue_wait_s.oldest)),
    ("QW99 s>", lambda replica: seconds(replica.queue_wait_s.p99)),
    ("KV%>", lambda replica: percent(kv_used_ratio(replica.kv))),
    ("USED>", lambda replica: count(replica.kv.used)),
    ("ADMIT<=>", lambda replica: count(replica.kv.admit_limit)),
    ("TOTAL>", lambda replica: count(replica.kv.total)),
    ("TOK/S>", lambda replica: rate(replica.tokens_per_s)),
    ("TTFT50 s>", lambda replica: seconds(replica.ttft_s.p50)),
    ("TTFT99 s>", lambda replica: seconds(replica.ttft_s.p99)),
    ("ITL50 ms>", lambda replica: milliseconds(replica.itl_s.p50)),
    ("ITL99 ms>", lambda replica: milliseconds(replica.itl_s.p99)),
    ("PREEMPT>", lambda replica: count(replica.preemptions)),
)
REQUEST_COLUMNS: tuple[tuple[str, Callable[[RequestRow], object]], ...] = (
    ("ID", lambda row: row.id),
    ("TENANT", lambda row: f"{row.tenant} (test)" if row.synthetic else row.tenant),
    ("TIER", lambda row: row.tier),
    ("REPLICA", lambda row: row.replica or UNKNOWN),
    ("STATE", lambda row: row.phase or row.finish_reason or row.state),
    ("PROMPT>", lambda row: count(row.prompt_tokens)),
    ("GENERATED>", lambda row: f"{count(row.generated_tokens)}/{count(row.max_tokens)}"),
    ("BLOCKS>", lambda row: count(row.kv_blocks)),
    ("AGE>", lambda row: age(row.age_s)),
    ("WAITED>", lambda row: age(row.queue_wait_s)),
    ("TTFT s>", lambda row: seconds(row.ttft_s)),
    ("WHY IT WAITS", _why),
)
EVENT_COLUMNS: tuple[tuple[str, Callable[[Event], object]], ...] = (
    ("TIME", lambda event: clock(event.at)),
    ("KIND", lambda event: event.kind),
    ("REPLICA", lambda event: _where(event)),
    ("REQUEST", lambda event: event.request or ""),
    ("TENANT", lambda event: event.tenant or ""),
    ("REASON", lambda event: event.reason or ""),
    ("TOKENS>", lambda event: "" if event.tokens is None else count(event.tokens)),
    ("BLOCKS>", lambda event: "" if event.blocks is None else count(event.blocks)),
    ("WAITED>", lambda event: "" if event.wait_s is None else age(event.wait_s)),
    ("MESSAGE", lambda event: event.message or ""),
)
OPERATION_COLUMNS: tuple[tuple[str, Callable[[Operation], object]], ...] = (
    ("ID", lambda operation: operation.id),
    ("KIND", lambda operation: operation.kind),
    ("TARGET", lambda operation: operation.target),
    ("PHASE", lambda operation: operation.phase),
    ("DONE>", _done),
    ("ACTOR", lambda operation: operation.actor),
    ("STARTED", lambda operation: clock(operation.started_at)),
    ("ENDED", lambda operation: "" if operation.ended_at is None else clock(operation.ended_at)),
    ("MESSAGE", lambda operation: operation.message),
)


def print_replicas(replicas: Iterable[Replica]) -> None:
    _print_columns(REPLICA_COLUMNS, replicas)


def print_requests(rows: Iterable[RequestRow]) -> None:
    _print_columns(REQUEST_COLUMNS, rows)


def _where(event: Event) -> str:
    """A move has two replicas."""
    here = event.replica or ""
    return f"{here}→{event.to_replica}" if event.to_replica not in (None, event.replica) else here


def print_events(events: Iterable[Event]) -> None:
    _print_columns(EVENT_COLUMNS, events)


def print_operations(operations: Iterable[Operation]) -> None:
    _print_columns(OPERATION_COLUMNS, operations)


def _print_columns(columns: Sequence[tuple[str, Callable[[T], object]]], items: Iterable[T]) -> None:
    print_table([head for head, _ in columns], [[cell(item) for _, cell in columns] for item in items])


def _joined(runs: Iterable[BlockRun]) -> Iterator[BlockRun]:
    """Neighbours that look alike here: what sets them apart is when they would be given away."""
    last: BlockRun | None = None
    for run in runs:
        alike = last is not None and (last.first + last.count, last.state, last.owners, last.refs) == (
            run.first,
            run.state,
            run.owners,
            run.refs,
        )
        if last is not None and alike:
            last = replace(last, count=last.count + run.count)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def print_blocks(blocks: Blocks) -> None:
    counts = dict.fromkeys(("used", "cached", "free"), 0)
    for run in blocks.blocks:
        counts[run.state] += run.count
    parts = ", ".join(f"{state} {count(number)}" for state, number in counts.items())
    print_line(f"{blocks.replica}: {count(blocks.total)} blocks of {blocks.block_size} tokens: {parts}")
    print_table(
        ["BLOCKS", "COUNT>", "STATE", "REFS>", "OWNERS"],
        [
            [
                f"{run.first}-{run.first + run.count - 1}" if run.count > 1 else run.first,
                run.count,
                run.state,
                run.refs,
                " ".join(run.owners),
            ]
            for run in _joined(blocks.blocks)
        ],
    )
