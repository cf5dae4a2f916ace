"""The server's end of the replica link: one ROUTER socket on a unix path, read and written without
blocking."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import zmq

from infer_engine.replica.messages import FromReplica, ToReplica
from infer_engine.replica.socket_reader import Sent, SocketReader
from infer_engine.replica.wire import (
    MAX_MESSAGE_BYTES,
    REPLICA_HWM,
    SERVER_HWM,
    MalformedError,
    decode_from_replica,
    encode,
)

log = logging.getLogger(__name__)

#: Longest path of a unix socket, in bytes.
MAX_PATH_BYTES = 107

OnMessage = Callable[[bytes, FromReplica], None]


class Link(Protocol):
    """What a fleet needs of the way to its replicas, whatever that is made of."""

    @property
    def malformed(self) -> int:
        """Messages that could not be decoded, since the start."""
        ...

    @property
    def endpoint(self) -> str: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    def send(self, peer: bytes, message: ToReplica) -> Sent: ...


#: Takes the run directory, what hears each message, and what hears that there are none left for now.
MakeLink = Callable[[Path, OnMessage, Callable[[], None]], Link]


class ServerLink:
    """Lives in the running asyncio loop from ``open`` to ``close``. ``on_message`` gets the sender's identity
    and the decoded message; ``on_batch_end`` is called when a batch was read."""

    def __init__(self, directory: Path, on_message: OnMessage, on_batch_end: Callable[[], None]) -> None:
        self._path = directory / "replicas.sock"
        length = len(os.fsencode(self._path))
        if length > MAX_PATH_BYTES:
            raise ValueError(
                f"run directory: the socket path {self._path} is {length} bytes long, "
                f"at most {MAX_PATH_BYTES} are allowed"
            )
        self._on_message = on_message
        self._on_batch_end = on_batch_end
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._reader: SocketReader | None = None
        #: Messages that could not be decoded, since the start.
        self.malformed = 0

    @property
    def endpoint(self) -> str:
        return f"ipc://{self._path}"

    def open(self) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.RCVHWM, REPLICA_HWM)
        self._socket.setsockopt(zmq.SNDHWM, SERVER_HWM)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._socket.bind(self.endpoint)
        self._reader = SocketReader(self._socket, self._receive, self._on_batch_end)

    def close(self) -> None:
        if self._socket is None or self._context is None or self._reader is None:
            return
        self._reader.close()
        self._socket.close()
        self._context.term()
        self._socket = self._context = self._reader = None
        self._path.unlink(missing_ok=True)

    def send(self, peer: bytes, message: ToReplica) -> Sent:
        return "unreachable" if self._reader is None else self._reader.send(peer, encode(message))

    def _receive(self, socket: "zmq.Socket[bytes]") -> None:
        self._deliver(socket.recv_multipart(zmq.DONTWAIT))

    def _deliver(self, frames: list[bytes]) -> None:
        try:
            if len(frames) != 2:
                raise MalformedError(f"{len(frames)} frames instead of 2")
            message = decode_from_replica(frames[1])
        except MalformedError as error:
            self.malformed += 1
            log.warning("malformed message from %r: %s", frames[0], error)
            return
        try:
            self._on_message(frames[0], message)
        except Exception:
            log.exception("handling a %s from %r failed", type(message).__name__, frames[0])
