"""What a server of somebody else is as a replica, once it was taken on: its figures, and how it is asked."""

import httpx2

from infer_engine.core.plan import Plan
from infer_engine.idle_connections import limits
from infer_engine.replica.upstream.books import Books
from infer_engine.replica.upstream.probe import Server
from infer_engine.replica.upstream.target import Target
from infer_engine.replica.upstream.tls import proof_of
from infer_engine.runner.runner import RunnerInfo
from infer_engine.runner.step_output import StepOutput
from infer_engine.settings import ReplicaSettings

#: Connections beside those of running streams: looks, and streams read to their end.
SPARE_CONNECTIONS = 8


class Elsewhere:
    """The runner of a replica that computes nothing itself."""

    def __init__(self, info: RunnerInfo) -> None:
        self.info = info

    def execute(self, plan: Plan) -> StepOutput:
        raise RuntimeError("an upstream computes by itself")

    def close(self) -> None:
        """There is nothing to close."""


def most_running(settings: ReplicaSettings, books: Books) -> int:
    """At once: as we are set, and no more than the server says that it can."""
    return min(settings.max_running, books.max_running or settings.max_running)


def info_of(
    server: Server, target: Target, settings: ReplicaSettings, books: Books, vocab_size: int
) -> RunnerInfo:
    reading, size = server.reading, settings.block_size
    context = reading.context_length or target.context_length
    total = books.kv_total_tokens
    tokens = most_running(settings, books) * context if total is None else total
    return RunnerInfo(
        model=reading.model,
        vocab_size=vocab_size,
        context_length=min(context, target.context_length),
        kv_blocks=max(1, settings.kv_blocks or tokens // size),
        block_size=size,
        kv_bytes_per_token=0,
        weight_bytes=0,
        device=target.address.place,
        dtype="",
        foreign=server.adapter.product,
        lacks=tuple(sorted(server.lacks)),
        most_running=books.max_running or None,
    )


def client_of(target: Target, settings: ReplicaSettings) -> httpx2.AsyncClient:
    """For its streams. How many there are at once is bounded by who is admitted."""
    base_url = target.address.base_url
    return httpx2.AsyncClient(
        base_url=base_url,
        headers={} if target.token is None else {"authorization": f"Bearer {target.token}"},
        limits=limits(most=None, most_idle=settings.max_running + SPARE_CONNECTIONS),
        trust_env=False,
        verify=proof_of(base_url),
    )
