"""The connection of a process that joins: one a life, blocking, used by one thread."""

import math
import secrets

import zmq

from infer_engine.replica.join_messages import FromJoiner, ToJoiner, decode_to_joiner, encode_join
from infer_engine.replica.link_watch import LinkWatch
from infer_engine.replica.messages import LinkKeys
from infer_engine.replica.wire import MAX_MESSAGE_BYTES

#: Messages that wait, either way: a handful is ever said.
HWM = 64
LINGER_MS = 500


class JoinSocket:
    """``keys``: its ticket is not used, the connection names itself."""

    def __init__(self, endpoint: str, keys: LinkKeys) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, LINGER_MS),
            (zmq.SNDHWM, HWM),
            (zmq.RCVHWM, HWM),
            (zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES),
        ):
            self._socket.setsockopt(option, value)
        named = LinkKeys(
            server=keys.server, public=keys.public, secret=keys.secret, ticket=f"join-{secrets.token_hex(16)}"
        )
        self._watch = LinkWatch(self._socket, named)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._watch.monitor, zmq.POLLIN)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ValueError(f"{endpoint}: {error.strerror}") from error

    def send(self, message: FromJoiner) -> None:
        """LinkLostError when the connection is gone."""
        self._watch.check()
        self._socket.send(encode_join(message), zmq.DONTWAIT)

    def receive(self, wait_s: float) -> ToJoiner | None:
        """The next message, None where there is none within ``wait_s``. LinkLostError when the connection is
        gone, MalformedError for what is no message."""
        if not self._poller.poll(math.ceil(wait_s * 1000)):
            return None
        self._watch.check()
        try:
            frames = self._socket.recv_multipart(zmq.DONTWAIT)
        except zmq.Again:
            return None
        # An empty one only asks whether we are there.
        return decode_to_joiner(frames[0]) if frames[0] else None

    def close(self) -> None:
        self._watch.close()
        self._socket.close()
        self._context.term()
