"""The two ends of the link over a real socket, and what they do about bytes that are no message."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from infer_engine.replica.dealer import Dealer
from infer_engine.replica.handle import LimitsError, ReplicaHandle
from infer_engine.replica.messages import (
    Ack,
    FromReplica,
    LimitsSet,
    Loading,
    Observe,
    SetLimits,
    Started,
    Stop,
    ToReplica,
    Withdrawn,
)
from infer_engine.replica.server_link import ServerLink
from infer_engine.replica.socket_reader import Sent
from infer_engine.replica.wire import (
    MalformedError,
    decode_from_replica,
    decode_to_replica,
    encode,
    identity,
)
from support.fleets import until
from support.replicas import submit

NESTED = b"\x91" * 100_000
BAD = [
    b"",
    b"\xc1",
    b"{}",
    NESTED,
    msgspec.msgpack.encode({"type": "nothing"}),
    msgspec.msgpack.encode({"type": "ack"}),
    msgspec.msgpack.encode({"type": "submit", "id": 7}),
    encode(Ack(3))[:-1],
]


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_what_is_no_message_is_named_so(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_to_replica(data)
    with pytest.raises(MalformedError):
        decode_from_replica(data)


def test_messages_come_out_as_they_went_in() -> None:
    sent = submit("a", 5, 7, emitted=[1, 2])
    assert decode_to_replica(encode(sent)) == sent
    withdrawn = Withdrawn(incarnation=3, ids=["a", "b"])
    assert decode_from_replica(encode(withdrawn)) == withdrawn


class Ends:
    def __init__(self, directory: Path) -> None:
        self.heard: list[tuple[bytes, FromReplica]] = []
        self.batches = 0
        self.link = ServerLink(
            directory, lambda sender, message: self.heard.append((sender, message)), self._batch
        )
        self.link.open()
        self.dealer = Dealer(self.link.endpoint, identity("r0", 1))

    def _batch(self) -> None:
        self.batches += 1

    def close(self) -> None:
        self.dealer.close()
        self.link.close()


async def test_both_directions_in_order(tmp_path: Path) -> None:
    ends = Ends(tmp_path)
    try:
        assert ends.link.send(b"r9.1", Stop()) == "unreachable"
        ends.dealer.send(Started(replica="r0", incarnation=1, pid=5))
        for number in range(1000):
            assert ends.dealer.offer(Loading(incarnation=1, progress=number / 1000, what="weights"))
        await until(lambda: len(ends.heard) == 1001)
        assert {sender for sender, _ in ends.heard} == {b"r0.1"}
        assert [m.progress for _, m in ends.heard if isinstance(m, Loading)] == [
            n / 1000 for n in range(1000)
        ]
        for number in range(1000):
            assert ends.link.send(b"r0.1", Ack(number)) == "sent"
        received: list[ToReplica] = []
        while len(received) < 1000:
            got = ends.dealer.receive(5.0, 64)
            assert 0 < len(got) <= 64
            received += got
        assert received == [Ack(number) for number in range(1000)]
        assert ends.dealer.receive(0.0, 1) == []
    finally:
        ends.close()
    assert os.listdir(tmp_path) == []


async def test_a_peer_that_does_not_read_is_reported_full_and_nothing_blocks(tmp_path: Path) -> None:
    ends = Ends(tmp_path)
    try:
        ends.dealer.send(Started(replica="r0", incarnation=1, pid=5))
        await until(lambda: ends.heard)
        large = submit("a", 1000)
        sent = 0
        while ends.link.send(b"r0.1", large) == "sent":
            sent += 1
            assert sent < 100_000
        assert sent >= 4096
        assert len(ends.dealer.receive(5.0, 10)) == 10
        await until(lambda: ends.dealer.receive(0.1, 256) and ends.link.send(b"r0.1", Stop()) == "sent")
    finally:
        ends.close()


async def test_malformed_bytes_cost_their_message_only(tmp_path: Path) -> None:
    ends = Ends(tmp_path)
    raw = ends.dealer._socket  # pyright: ignore[reportPrivateUsage]
    try:
        for data in BAD:
            raw.send(data)
        ends.dealer.send(Started(replica="r0", incarnation=1, pid=5))
        await until(lambda: ends.heard)
        assert ends.link.malformed == len(BAD)
        assert len(ends.heard) == 1
        assert ends.link.send(b"r0.1", Stop()) == "sent"
    finally:
        ends.close()


async def test_a_path_too_long_for_a_socket_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\d+ bytes long, at most 107"):
        ServerLink(tmp_path / ("x" * 120), lambda sender, message: None, lambda: None)


class Pipe:
    """Stands in for the socket below a handle."""

    def __init__(self) -> None:
        self.result: Sent = "sent"
        self.sent: list[ToReplica] = []

    def send(self, peer: bytes, message: ToReplica) -> Sent:
        if self.result == "sent":
            self.sent.append(message)
        return self.result


def test_a_handle_keeps_what_does_not_fit_and_sends_it_in_order() -> None:
    pipe = Pipe()
    handle = ReplicaHandle("r0", pipe.send)
    handle.tell(Observe(hz=1))
    pipe.result = "full"
    handle.tell(Observe(hz=2))
    pipe.result = "sent"
    handle.tell(Observe(hz=3))
    assert not handle.submit(submit("a")), "a request must not overtake what is kept"
    assert pipe.sent == [Observe(hz=1)]
    assert handle.flush()
    assert pipe.sent == [Observe(hz=1), Observe(hz=2), Observe(hz=3)]
    assert handle.submit(submit("a"))


async def test_calls_are_answered_refused_lost_or_time_out() -> None:
    pipe = Pipe()
    handle = ReplicaHandle("r0", pipe.send)
    first = asyncio.ensure_future(handle.set_limits({"admit_limit": 3}, 5.0))
    second = asyncio.ensure_future(handle.set_limits({"admit_limit": 99}, 5.0))
    await asyncio.sleep(0)
    one, two = (message.call for message in pipe.sent if isinstance(message, SetLimits))
    handle.hear(LimitsSet(incarnation=0, call=two, error="too many"), 0.0, 0.0)
    handle.hear(LimitsSet(incarnation=0, call=one, old={"admit_limit": 9}, new={"admit_limit": 3}), 0.0, 0.0)
    handle.hear(LimitsSet(incarnation=0, call=one), 0.0, 0.0)
    assert (await first).new == {"admit_limit": 3}
    with pytest.raises(LimitsError, match="too many"):
        await second
    lost = asyncio.ensure_future(handle.set_limits({"admit_limit": 3}, 5.0))
    await asyncio.sleep(0)
    handle.begin(2)
    with pytest.raises(LimitsError, match="lost"):
        await lost
    with pytest.raises(LimitsError, match="did not answer"):
        await handle.set_limits({"admit_limit": 3}, 0.001)
