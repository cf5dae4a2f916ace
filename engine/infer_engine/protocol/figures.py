"""Percentiles, and where time went."""

from msgspec import Struct


class Percentiles(Struct, frozen=True):
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class TtftSplit(Struct, frozen=True, kw_only=True):
    """Where the seconds from a request's receipt to the first byte of its answer went. ``tokenize`` includes
    the wait for it, ``queue`` every wait for admission before the first token. The parts sum to ``total``,
    except in percentiles, where each is its own part's."""

    gateway: float | None = None
    tokenize: float | None = None
    queue: float | None = None
    prefill: float | None = None
    send: float | None = None
    total: float | None = None


class TtftSplits(Struct, frozen=True, kw_only=True):
    """Of users' streamed requests over the last minute. ``slowest`` is the mean of the slowest 1 % of
    ``requests``, which include those that still wait, with their present age."""

    p50: TtftSplit = TtftSplit()
    p95: TtftSplit = TtftSplit()
    slowest: TtftSplit | None = None
    slowest_requests: int = 0
    requests: int = 0


class QueueWait(Struct, frozen=True):
    """Seconds spent waiting for admission, over the last minute, those still waiting included."""

    p50: float | None = None
    p99: float | None = None
    oldest: float | None = None
