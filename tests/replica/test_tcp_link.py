"""The replica link over TCP, over real sockets: who gets in, who counts as whom, and how both ends learn that
the connection is gone."""

import asyncio
import logging
import stat
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
from infer_engine.replica.curve import (
    KeyFileError,
    KeyPair,
    kept_pair,
    new_pair,
    public_file,
    read_public_key,
)
from infer_engine.replica.dealer import Dealer
from infer_engine.replica.key_list import KeyList
from infer_engine.replica.link_watch import LinkLostError
from infer_engine.replica.links import Links
from infer_engine.replica.messages import Ack, FromReplica, LinkKeys, Started, Stop, ToReplica
from infer_engine.replica.server_link import ServerLink
from infer_engine.replica.tcp_link import ListenError, TcpLink
from support.fleets import until

STARTED = Started(replica="r5", incarnation=1, pid=7)


class Server:
    def __init__(self, known: tuple[bytes, ...] = ()) -> None:
        self.keys = new_pair()
        self.heard: list[tuple[bytes, FromReplica]] = []
        self.guests: list[tuple[bytes, bytes, str, bytes]] = []
        self.link = TcpLink(
            "127.0.0.1",
            0,
            self.keys,
            lambda sender, message: self.heard.append((sender, message)),
            lambda: None,
            known=lambda key: key in known,
            on_guest=lambda *guest: self.guests.append(guest),
        )
        self.link.open()

    def keys_of(self, pair: KeyPair, ticket: str, server: bytes | None = None) -> LinkKeys:
        return LinkKeys(
            server=(server or self.keys.public).hex(),
            public=pair.public.hex(),
            secret=pair.secret.hex(),
            ticket=ticket,
        )

    @contextmanager
    def peer(self, keys: LinkKeys) -> Generator[Dealer]:
        dealer = Dealer(self.link.endpoint, b"r5.1", keys)
        try:
            yield dealer
        finally:
            dealer.close()


async def lost(dealer: Dealer) -> LinkLostError:
    """What the peer is told of its connection, once it is told."""
    found: list[LinkLostError] = []

    def looks() -> bool:
        try:
            dealer.receive(0.0, 16)
        except LinkLostError as error:
            found.append(error)
        return bool(found)

    await until(looks)
    return found[0]


async def next_of(dealer: Dealer) -> ToReplica:
    """Its next message; news of the connection itself are none."""
    found: list[ToReplica] = []

    def looks() -> bool:
        found.extend(dealer.receive(0.0, 1))
        return bool(found)

    await until(looks)
    return found[0]


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    made = Server()
    yield made
    made.link.close()


async def test_a_ticket_with_its_key_is_one_life_of_a_replica_in_both_directions(server: Server) -> None:
    link = server.link
    assert link.send(b"r5.1", Stop()) == "unreachable"
    keys = link.issue(b"r5.1")
    assert not link.reaches(b"r5.1")
    with server.peer(keys) as dealer:
        dealer.send(STARTED)
        await until(lambda: server.heard)
        assert server.heard == [(b"r5.1", STARTED)]
        assert link.reaches(b"r5.1")
        assert link.send(b"r5.1", Ack(3)) == "sent"
        assert [await next_of(dealer), await next_of(dealer)] == [Ack(0), Ack(3)]
        link.withdraw(b"r5.1")
        assert link.send(b"r5.1", Stop()) == "unreachable"
        dealer.send(STARTED)
        await until(lambda: server.guests)
        assert len(server.heard) == 1, "what is withdrawn does not count"
    assert (link.malformed, link.refused) == (0, 0)


async def test_the_server_sees_a_peer_go_and_a_peer_sees_the_server_go(server: Server) -> None:
    with server.peer(server.link.issue(b"r5.1")) as dealer:
        dealer.send(STARTED)
        await until(lambda: server.heard)
    await until(lambda: not server.link.reaches(b"r5.1"))
    with server.peer(server.link.issue(b"r5.2")) as dealer:
        dealer.send(STARTED)
        await until(lambda: len(server.heard) == 2)
        server.link.close()
        assert "connection to the server is gone" in str(await lost(dealer))
        with pytest.raises(LinkLostError):
            dealer.send(STARTED)


async def test_a_stranger_gets_nothing_and_both_sides_say_why(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    ticket = server.link.issue(b"r5.1").ticket
    stranger = new_pair()
    with (
        caplog.at_level(logging.WARNING),
        server.peer(server.keys_of(stranger, ticket)) as dealer,
    ):
        dealer.offer(STARTED)
        why = await lost(dealer)
    assert why.refused
    assert stranger.public.hex() in str(why)
    assert stranger.public.hex() in caplog.text
    assert (server.heard, server.guests, server.link.refused) == ([], [], 1)
    assert server.link.send(b"r5.1", Stop()) == "unreachable"


async def test_a_wrong_server_key_is_named(server: Server) -> None:
    keys = server.link.issue(b"r5.1")
    with server.peer(server.keys_of(new_pair(), keys.ticket, server=new_pair().public)) as dealer:
        why = await lost(dealer)
    assert "server-key file" in str(why)
    assert server.link.refused == 0


async def test_without_encryption_nobody_is_heard(server: Server) -> None:
    ticket = server.link.issue(b"r5.1").ticket
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    plain = context.socket(zmq.DEALER)
    plain.setsockopt(zmq.IDENTITY, ticket.encode())
    plain.setsockopt(zmq.LINGER, 0)
    monitor = plain.get_monitor_socket()
    plain.connect(server.link.endpoint)
    plain.send(b"x")
    try:
        from zmq.utils.monitor import recv_monitor_message

        events: set[int] = set()
        while zmq.Event.DISCONNECTED not in events:
            assert await asyncio.to_thread(monitor.poll, 20_000)
            events.add(recv_monitor_message(monitor)["event"])
    finally:
        plain.disable_monitor()
        monitor.close()
        plain.close()
        context.term()
    assert (server.heard, server.guests) == ([], [])


async def test_another_ones_ticket_is_worth_nothing_to_those_who_may_join() -> None:
    mine, other = new_pair(), new_pair()
    server = Server((mine.public, other.public))
    try:
        keys = server.link.issue(b"r5.1", mine.public)
        with server.peer(server.keys_of(other, keys.ticket)) as dealer:
            dealer.send(STARTED)
            await until(lambda: server.link.malformed)
        assert server.heard == []
        with server.peer(server.keys_of(mine, "elsewhere")) as dealer:
            dealer.send(STARTED)
            await until(lambda: server.guests)
        route, public, address, _ = server.guests[0]
        assert (route, public, address) == (b"elsewhere", mine.public, "127.0.0.1")
    finally:
        server.link.close()


async def test_both_links_are_one(server: Server, tmp_path: Path) -> None:
    server.link.close()
    local = ServerLink(tmp_path, lambda sender, message: server.heard.append((sender, message)), lambda: None)
    links = Links(local, server.link)
    links.open()
    near = Dealer(links.endpoint, b"r0.1")
    try:
        near.send(STARTED)
        with server.peer(server.link.issue(b"r5.1")) as far:
            far.send(STARTED)
            await until(lambda: len(server.heard) == 2)
            assert {sender for sender, _ in server.heard} == {b"r0.1", b"r5.1"}
            assert [links.send(each, Ack(1)) for each in (b"r0.1", b"r5.1", b"r9.1")] == [
                "sent",
                "sent",
                "unreachable",
            ]
            assert (await next_of(near), await next_of(far)) == (Ack(1), Ack(1))
    finally:
        near.close()
        links.close()


async def test_an_address_that_is_taken_is_named(server: Server) -> None:
    twin = TcpLink("127.0.0.1", server.link.port, new_pair(), lambda *_: None, lambda: None)
    with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{server.link.port}: Address already in use"):
        twin.open()


def test_a_pair_is_made_once_and_only_its_public_half_is_for_others(tmp_path: Path) -> None:
    path = tmp_path / "state" / "join-key"
    pair = kept_pair(path)
    assert kept_pair(path) == pair
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_public_key(public_file(path)) == pair.public
    assert pair.secret.hex() not in public_file(path).read_text()
    public_file(path).chmod(0o664)
    with pytest.raises(KeyFileError, match=r"others may write it \(mode 0664\); chmod go-w it"):
        read_public_key(public_file(path))
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 600"):
        kept_pair(path)
    path.chmod(0o600)
    path.write_text("password\n")
    with pytest.raises(KeyFileError, match="64 hexadecimal digits") as failed:
        kept_pair(path)
    assert "password" not in str(failed.value)
    with pytest.raises(KeyFileError, match="No such file"):
        read_public_key(tmp_path / "none")


def test_the_list_of_those_who_may_join_is_read_again_when_it_changes(tmp_path: Path) -> None:
    first, second = new_pair().public, new_pair().public
    path = tmp_path / "keys"
    path.write_text(f"# ours\n{first.hex()} machine a\n\n")
    path.chmod(0o600)
    listed = KeyList(path)
    assert (first in listed, second in listed) == (True, False)
    path.write_text(f"{second.hex()}  # machine b, in place of a\n")
    assert (first in listed, second in listed) == (False, True)
    path.write_text("nonsense\n")
    assert second in listed, "a list that cannot be read changes nothing"
    path.unlink()
    assert second in listed
    with pytest.raises(KeyFileError, match="No such file"):
        KeyList(path)
    path.write_text(f"{first.hex()}\nnonsense\n")
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="line 2: a key is 64 hexadecimal digits"):
        KeyList(path)
    path.chmod(0o666)
    with pytest.raises(KeyFileError, match="others may read or write it"):
        KeyList(path)
