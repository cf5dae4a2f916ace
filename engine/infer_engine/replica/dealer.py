"""The replica's end of the link: a DEALER socket, used by the step loop's thread alone."""

import logging
import math

import zmq

from infer_engine.replica.link_watch import LinkWatch
from infer_engine.replica.messages import FromReplica, LinkKeys, ToReplica
from infer_engine.replica.wire import (
    MAX_MESSAGE_BYTES,
    REPLICA_HWM,
    SERVER_HWM,
    MalformedError,
    decode_to_replica,
    encode,
)

log = logging.getLogger(__name__)

#: How long the last messages may take to leave when the socket closes.
LINGER_MS = 500
#: How often one that waits for room looks whether the link over TCP is still there.
LOOK_MS = 500


class Dealer:
    """With ``keys`` over TCP; all methods but ``close`` then raise LinkLostError once the connection is
    gone."""

    def __init__(self, endpoint: str, identity: bytes, keys: LinkKeys | None = None) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, identity)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.setsockopt(zmq.SNDHWM, REPLICA_HWM)
        self._socket.setsockopt(zmq.RCVHWM, SERVER_HWM)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._watch = LinkWatch(self._socket, keys) if keys is not None else None
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        if self._watch is not None:
            self._poller.register(self._watch.monitor, zmq.POLLIN)
        self._socket.connect(endpoint)
        #: Messages that could not be decoded, since the start.
        self.malformed = 0

    def receive(self, wait_s: float, most: int) -> list[ToReplica]:
        """At most ``most`` messages, waiting up to ``wait_s`` for the first."""
        ready = self._poller.poll(math.ceil(wait_s * 1000))
        if self._watch is not None and ready:
            self._watch.check()
        if not ready:
            return []
        messages: list[ToReplica] = []
        for _ in range(most):
            try:
                frames = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                break
            try:
                if len(frames) != 1:
                    raise MalformedError(f"{len(frames)} frames instead of 1")
                messages.append(decode_to_replica(frames[0]))
            except MalformedError as error:
                self.malformed += 1
                log.warning("malformed message from the server: %s", error)
        return messages

    def send(self, message: FromReplica) -> None:
        """Send, waiting for room: only a server that stopped reading makes it wait, and the lifeline (or the
        end of the connection) ends that."""
        if self._watch is None:
            self._socket.send(encode(message))
            return
        data = encode(message)
        while True:
            self._watch.check()
            try:
                self._socket.send(data, zmq.DONTWAIT)
            except zmq.Again:
                self._socket.poll(LOOK_MS, zmq.POLLOUT)
            else:
                return

    def offer(self, message: FromReplica) -> bool:
        """Send if there is room. For what a later message replaces."""
        try:
            self._socket.send(encode(message), zmq.DONTWAIT)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._socket.close()
        self._context.term()
