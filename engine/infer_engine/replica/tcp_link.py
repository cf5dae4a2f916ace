"""The server's end of the replica link over TCP: one ROUTER socket behind CurveZMQ.

Everything is encrypted, the server proves itself by its key, and nobody without a known key gets past the
handshake. Behind it a connection counts for one life of a replica only where it has that life's ticket *and*
the key that the ticket was made out to: whoever may join can neither hear nor say what is another's.
"""

import ipaddress
import logging
import secrets
import socket as sockets
import time
from collections.abc import Callable
from dataclasses import dataclass

import zmq

from infer_engine.replica.curve import KeyPair, new_pair
from infer_engine.replica.key_gate import DOMAIN, KeyGate
from infer_engine.replica.messages import Ack, LinkKeys, ToReplica
from infer_engine.replica.seldom import Seldom
from infer_engine.replica.server_link import OnMessage
from infer_engine.replica.socket_reader import Sent, SocketReader
from infer_engine.replica.wire import (
    HANDSHAKE_MS,
    HEARTBEAT_MS,
    HEARTBEAT_TIMEOUT_MS,
    REPLICA_HWM,
    SERVER_HWM,
    MalformedError,
    decode_from_replica,
    encode,
)

log = logging.getLogger(__name__)

BACKLOG = 128
TICKET_BYTES = 16
#: Of a message from there: a map of a million blocks, and to spare. Refusing one takes its decoder's time.
MOST_BYTES = 16 << 20
#: Malformed messages are logged at most so often within so long.
MOST_LOGGED, LOG_PERIOD_S = 10, 60.0

#: Hears what a connection without a ticket says: its name, its public key, its address and the message.
OnGuest = Callable[[bytes, bytes, str, bytes], None]


class ListenError(OSError):
    """It cannot listen there; ``str()`` says where and why."""


@dataclass(frozen=True, slots=True)
class _Ticket:
    identity: bytes
    public: bytes


def ignore_guests(_route: bytes, _public: bytes, _address: str, _message: bytes) -> None:
    """For a link that only the server's own replicas use."""


class TcpLink:
    """Lives in the running asyncio loop from ``open`` to ``close``. ``known`` says of a public key whether it
    may connect though it has no ticket; ``on_guest`` hears those."""

    def __init__(
        self,
        host: str,
        port: int,
        keys: KeyPair,
        on_message: OnMessage,
        on_batch_end: Callable[[], None],
        *,
        known: Callable[[bytes], bool] = lambda _: False,
        on_guest: OnGuest = ignore_guests,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._port = host, port
        self._keys = keys
        self._on_message = on_message
        self._on_batch_end = on_batch_end
        self._known = known
        self._on_guest = on_guest
        self._gate = KeyGate(self._may_connect, clock)
        self._clock = clock
        self._logs = Seldom(MOST_LOGGED, LOG_PERIOD_S)
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._reader: SocketReader | None = None
        #: By the name of the connection, and the other way round.
        self._tickets: dict[bytes, _Ticket] = {}
        self._routes: dict[bytes, bytes] = {}
        #: How many tickets each key has.
        self._issued: dict[bytes, int] = {}
        #: Messages that could not be decoded, or came with another's ticket, since the start.
        self.malformed = 0

    @property
    def endpoint(self) -> str:
        """With the port that it really has, once it is open."""
        return (
            f"tcp://[{self._host}]:{self._port}" if ":" in self._host else f"tcp://{self._host}:{self._port}"
        )

    @property
    def port(self) -> int:
        return self._port

    @property
    def refused(self) -> int:
        """Connections that were refused for their key, since the start."""
        return self._gate.refused

    def open(self) -> None:
        """ListenError when the address cannot be had."""
        address = _numeric(self._host)
        self._context = zmq.Context()
        self._gate.open(self._context)
        socket = self._socket = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.RCVHWM, REPLICA_HWM),
            (zmq.SNDHWM, SERVER_HWM),
            (zmq.MAXMSGSIZE, MOST_BYTES),
            (zmq.BACKLOG, BACKLOG),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
            (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS),
            (zmq.IPV6, int(address.version == 6)),
            (zmq.CURVE_SERVER, 1),
            (zmq.ZAP_ENFORCE_DOMAIN, 1),
        ):
            socket.setsockopt(option, value)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret)
        socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        where = f"[{address}]" if address.version == 6 else str(address)
        try:
            socket.bind(f"tcp://{where}:{self._port or '*'}")
        except zmq.ZMQError as error:
            self._abandon()
            raise ListenError(f"cannot listen for replicas at {self.endpoint}: {error.strerror}") from None
        self._port = int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        self._reader = SocketReader(socket, self._receive, self._on_batch_end)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._abandon()

    def _abandon(self) -> None:
        self._gate.close()
        if self._socket is not None:
            self._socket.close()
        if self._context is not None:
            self._context.term()
        self._socket = self._context = None

    # --- who is who ----------------------------------------------------------------------------------------

    def issue(self, identity: bytes, public: bytes | None = None) -> LinkKeys:
        """Have the life of a replica with this identity expected: from a peer with the key ``public``, whose
        secret stays with it, or from whoever gets the fresh pair that is made here."""
        self.withdraw(identity)
        pair = KeyPair(public, b"") if public is not None else new_pair()
        ticket = secrets.token_hex(TICKET_BYTES)
        self._tickets[ticket.encode()] = _Ticket(identity, pair.public)
        self._routes[identity] = ticket.encode()
        self._issued[pair.public] = self._issued.get(pair.public, 0) + 1
        return LinkKeys(
            server=self._server_public().hex(),
            public=pair.public.hex(),
            secret=pair.secret.hex(),
            ticket=ticket,
        )

    def withdraw(self, identity: bytes) -> None:
        """That life is over: nothing it says counts, and nothing reaches it."""
        route = self._routes.pop(identity, None)
        if route is None:
            return
        public = self._tickets.pop(route).public
        self._issued[public] -= 1
        if not self._issued[public]:
            del self._issued[public]

    def has(self, identity: bytes) -> bool:
        return identity in self._routes

    def reaches(self, identity: bytes) -> bool:
        """There is a connection to it now: it came, and has neither gone nor fallen silent."""
        return self.send(identity, Ack(0)) != "unreachable"

    def _may_connect(self, public: bytes) -> bool:
        return public in self._issued or self._known(public)

    def _server_public(self) -> bytes:
        return self._keys.public

    # --- messages ------------------------------------------------------------------------------------------

    def send(self, peer: bytes, message: ToReplica) -> Sent:
        route = self._routes.get(peer)
        return "unreachable" if route is None else self.send_to(route, encode(message))

    def send_to(self, route: bytes, message: bytes) -> Sent:
        """To the connection of that name."""
        return "unreachable" if self._reader is None else self._reader.send(route, message)

    def _receive(self, socket: "zmq.Socket[bytes]") -> None:
        frames = socket.recv_multipart(zmq.DONTWAIT, copy=False)
        route = frames[0].bytes
        try:
            if len(frames) != 2:
                raise MalformedError(f"{len(frames)} frames instead of 2")
            public, address = _peer_of(frames[1])
            ticket = self._tickets.get(route)
            if ticket is not None and ticket.public != public:
                raise MalformedError("it has a ticket that was made out to another key")
            self._deliver(ticket, (route, public, address), frames[1].bytes)
        except MalformedError as error:
            self.malformed += 1
            if self._logs.may(self._clock()):
                log.warning(
                    "malformed message over TCP: %s (%d more were not logged)", error, self._logs.left_out()
                )

    def _deliver(self, ticket: _Ticket | None, peer: tuple[bytes, bytes, str], data: bytes) -> None:
        message = decode_from_replica(data) if ticket is not None else None
        try:
            if ticket is not None and message is not None:
                self._on_message(ticket.identity, message)
            else:
                self._on_guest(*peer, data)
        except MalformedError:
            raise
        except Exception:
            log.exception("handling a message of %r failed", ticket.identity if ticket else peer[2])


def _peer_of(frame: zmq.Frame) -> tuple[bytes, str]:
    """Its public key, as the gate let it pass, and its address."""
    try:
        return bytes.fromhex(str(frame["User-Id"])), str(frame["Peer-Address"])
    except (zmq.ZMQError, KeyError, ValueError) as error:
        raise MalformedError(f"nobody has proved to have sent it: {error}") from error


def _numeric(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        found = sockets.getaddrinfo(host, None, type=sockets.SOCK_STREAM)
        return ipaddress.ip_address(str(found[0][4][0]))
    except (OSError, ValueError, IndexError) as error:
        raise ListenError(f"cannot listen for replicas at {host}: {error}") from None
