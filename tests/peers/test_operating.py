"""``infer-console serve --upstream`` before a real vLLM and a real llama.cpp server: what an operator does
and what happens, while clients stream through it with the official client.

Streams that go on at a server of another make go on in its arithmetic (fp32 there, Q4_1 here), so their words
are not compared: none may break, and each has exactly the tokens that were asked for.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from infer_console.cli import codes
from support.before_peers import TOKENS, Operated, Streamed, operating, streams
from support.cli import Run
from support.eventually import eventually
from support.peer import LONG_S, Peer
from support.processes import children

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1800)]

#: A small peer runs so many at once.
FIT = 4
SIX = ("the sea", "a mill", "two owls", "a lamp", "a bell", "an old bridge")

each_of_both = pytest.mark.parametrize("id", ["r0", "r1"], ids=["vllm", "llamacpp"])


@pytest.fixture(scope="module")
def started(vllm: Peer, llamacpp: Peer) -> Generator[Operated]:
    with operating(Path(sys.executable).parent / "infer-console", vllm, llamacpp) as gateway:
        yield gateway


@pytest.fixture
def gateway(started: Operated, run: Run) -> Operated:
    """Both are ready, and nothing is asked of them."""
    started.run = run
    started.wait_ready()
    assert started.rows() == []
    return started


def seen_running(gateway: Operated, asked: list[Streamed]) -> Iterator[list[dict[str, Any]]]:
    """Those that have some tokens, again and again until all have ended: one server may be done before the
    other has begun."""
    until_s = time.monotonic() + LONG_S
    while not all(each.ended.is_set() for each in asked):
        assert time.monotonic() < until_s
        yield [row for row in gateway.rows() if row["state"] == "running" and row["generated_tokens"] > 2]


def some_run(gateway: Operated, replica: str) -> set[str]:
    """Who has some tokens from there; the others may have ended, or wait."""

    def look() -> set[str]:
        told = [row for row in gateway.rows() if row["state"] == "running" and row["generated_tokens"] > 2]
        return on(told, replica)

    return eventually(look, LONG_S)


def on(rows: list[dict[str, Any]], replica: str) -> set[str]:
    return {row["id"] for row in rows if row["replica"] == replica}


def moved(gateway: Operated, replica: str, reason: str) -> set[str]:
    """Who went from there to the other one."""
    return {
        event["request"]
        for event in gateway.told("events", "--limit", "1000")["events"]
        if (event["kind"], event["replica"], event["reason"]) == ("move", replica, reason)
        and event["to_replica"] != replica
    }


def all_whole(asked: list[Streamed]) -> None:
    assert [
        (each.about, each.error, each.finish_reason, each.tokens) for each in asked if not each.whole
    ] == []
    assert all(each.text for each in asked)


def test_both_serve_and_the_roster_tells_who_where(gateway: Operated) -> None:
    rows = gateway.told("status")["replicas"]
    assert [(row["id"], row["upstream"], row["state"]) for row in rows] == [
        (f"r{number}", peer.product, "ready") for number, peer in enumerate(gateway.upstreams)
    ]
    with streams(gateway, *SIX) as asked:
        ran = {row["id"]: row for rows in seen_running(gateway, asked) for row in rows}
    all_whole(asked)
    assert on(list(ran.values()), "r0")
    assert on(list(ran.values()), "r1")
    for row in ran.values():
        assert row["phase"] == "decode"
        assert row["prompt_tokens"] > 20
        assert row["max_tokens"] == TOKENS
        assert row["ttft_s"] > 0
        assert row["kv_blocks"] > 0


def test_who_waits_says_why(gateway: Operated) -> None:
    def asking(what: str) -> AbstractContextManager[list[Streamed]]:
        return streams(gateway, *(f"{what} {number}" for number in range(2 * FIT + 2)))

    with asking("number") as first:
        # vLLM does not say how many it runs at once: those that wait inside it show it.
        eventually(lambda: FIT <= gateway.replica("r0")["max_running"] <= FIT + 1, LONG_S)
        with asking("year") as later:
            eventually(lambda: {row["waiting_reason"] for row in waiting(gateway)} == {"slots"}, LONG_S)
    all_whole(first + later)


def waiting(gateway: Operated) -> list[dict[str, Any]]:
    return [row for row in gateway.rows() if row["state"] == "waiting"]


def test_headroom_makes_others_wait(gateway: Operated) -> None:
    for id in ("r0", "r1"):  # all of it: only who is alone there may run
        gateway.do("headroom", f"{gateway.replica(id)['kv']['total']}b", "--replica", id)
    try:
        with streams(gateway, *SIX) as asked:
            held = eventually(
                lambda: [row for row in waiting(gateway) if row["waiting_reason"] == "headroom"], LONG_S
            )
            assert all(row["generated_tokens"] == 0 for row in held)
            eventually(lambda: [row for row in gateway.rows() if row["state"] == "running"], LONG_S)
            gateway.do("headroom", "10%")
        all_whole(asked)
    finally:
        gateway.do("headroom", "10%")


def test_cancelled_requests_leave_their_servers(gateway: Operated, run: Run) -> None:
    with streams(gateway, *SIX[:4]) as asked:
        for rows in seen_running(gateway, asked):
            for row in rows:
                told = run("cancel", row["id"], "--connect", gateway.connect)
                assert told.code == codes.OK or row["id"] not in {each["id"] for each in gateway.rows()}
    # An answer that came to its end just before is none that was cancelled.
    ended = [each for each in asked if not each.whole]
    assert ended
    assert all(each.finish_reason is None and "cancel" in str(each.error) for each in ended)

    def idle(peer: Peer) -> bool:
        told = run("--connect", peer.connect, "status", "--json")
        return told.document["totals"]["running"] == 0

    for peer in gateway.upstreams:
        eventually(lambda peer=peer: idle(peer), LONG_S)


@each_of_both
def test_drained_while_it_streams(gateway: Operated, id: str) -> None:
    with streams(gateway, *SIX[:4]) as asked:
        there = some_run(gateway, id)
        gateway.do("drain", id, "--mode", "migrate")  # returns when it is drained
        drained = gateway.replica(id)
        gateway.do("undrain", id)
        assert (drained["state"], drained["running"]) == ("drained", 0)
    all_whole(asked)
    assert there & moved(gateway, id, "draining")


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def whole_server(peer: Peer) -> list[int]:
    return [peer.process.pid, *children(peer.process.pid)]


def its_engine(peer: Peer) -> list[int]:
    """vLLM computes in a process of its own: the one that answers goes on answering."""
    return children(peer.process.pid)


@pytest.mark.parametrize(
    ("id", "hangs"), [("r0", its_engine), ("r1", whole_server)], ids=["vllm", "llamacpp"]
)
def test_one_hangs_and_its_streams_go_on_at_the_other(
    gateway: Operated, id: str, hangs: Callable[[Peer], list[int]]
) -> None:
    lives = gateway.replica(id)["incarnation"]
    with streams(gateway, *SIX[:4]) as asked:
        there = some_run(gateway, id)
        with stopped(hangs(gateway.upstreams[int(id[1:])])):
            for each in asked:
                assert each.ended.wait(LONG_S)
            assert gateway.replica(id)["state"] in ("starting", "failed")
    all_whole(asked)
    assert there & moved(gateway, id, "replica_lost")
    gateway.wait_ready()
    assert gateway.replica(id)["incarnation"] > lives


def test_one_is_killed_under_load(gateway: Operated) -> None:
    id, peer = "r1", gateway.upstreams[1]  # the other one takes a minute to come back
    lives = gateway.replica(id)["incarnation"]
    with streams(gateway, *SIX) as asked:
        there = some_run(gateway, id)
        peer.kill()
    all_whole(asked)
    assert there & moved(gateway, id, "replica_lost")
    lost = gateway.replica(id)
    assert lost["state"] in ("starting", "failed")
    assert str(peer.port) in (lost["error"] or "")
    peer.restart()
    gateway.wait_ready()
    assert gateway.replica(id)["incarnation"] > lives
    with streams(gateway, *SIX) as asked:
        some_run(gateway, id)
    all_whole(asked)
