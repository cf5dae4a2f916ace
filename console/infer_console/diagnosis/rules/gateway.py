"""Time is lost before any replica sees the request: in the gateway's loop, or waiting to be tokenized."""

from collections.abc import Iterator

from infer_console.diagnosis.case import Case
from infer_console.state.finding import Finding
from infer_console.view.format import count, milliseconds, seconds

#: A loop that is late by so much delays every stream visibly; for so long.
LAG_S, HELD_S = 0.1, 3.0
#: Share of the queue that may form before the tokenizer, and the least that is one.
QUEUE_SHARE, QUEUE = 0.25, 8
#: Of the slowest requests, tokenizing takes so long and is most of their time.
TOKENIZE_S, TOKENIZE_SHARE = 0.5, 0.5


def gateway_lag(case: Case) -> Iterator[Finding]:
    held_s = case.fleet.held_s("loop_lag_s", LAG_S)
    gateway = case.picture.fleet.gateway if case.picture.fleet is not None else None
    if gateway is None or held_s < HELD_S or gateway.connections == 0:
        return  # with no connection nobody's stream is late
    connections = f"{count(gateway.connections)} of {count(gateway.max_connections)}"
    yield Finding(
        rule="gateway_lag",
        since_s=held_s,
        evidence={
            "loop_lag_p99_s": gateway.loop_lag_p99_s,
            "loop_lag_p50_s": gateway.loop_lag_p50_s,
            "connections": gateway.connections,
            "max_connections": gateway.max_connections,
        },
        confidence=0.9,
        words=f"the gateway lags: its loop is late by {milliseconds(gateway.loop_lag_p99_s)} ms (p99), every"
        f" stream with it; {connections} connections",
    )


def tokenizer_lag(case: Case) -> Iterator[Finding]:
    gateway = case.picture.fleet.gateway if case.picture.fleet is not None else None
    if gateway is None:
        return
    most = gateway.max_tokenizer_queue
    queue = max(QUEUE, round(QUEUE_SHARE * most)) if most is not None else QUEUE
    held_s = case.fleet.held_s("tokenizer_queue", queue)
    slowest = case.picture.totals.ttft_split_s.slowest if case.picture.totals is not None else None
    spent_s = slowest.tokenize if slowest is not None else None
    total_s = slowest.total if slowest is not None else None
    mostly = spent_s is not None and total_s and spent_s >= max(TOKENIZE_S, TOKENIZE_SHARE * total_s)
    if held_s < HELD_S and not mostly:
        return
    yield Finding(
        rule="tokenizer_lag",
        since_s=held_s or None,
        evidence={
            "tokenizer_queue": gateway.tokenizer_queue,
            "max_tokenizer_queue": most,
            "slowest_tokenize_s": spent_s,
            "slowest_ttft_s": total_s,
        },
        confidence=0.9 if held_s >= HELD_S and mostly else 0.7,
        words=f"long prompts wait for the tokenizer: {count(gateway.tokenizer_queue)} queue; of the slowest"
        f" 1% {seconds(spent_s)}s of {seconds(total_s)}s is tokenizing",
    )
