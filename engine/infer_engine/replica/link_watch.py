"""A replica's end of the link over TCP: how it proves itself, and how it learns that the connection is gone.

ZeroMQ would connect again by itself, and what was under way would be lost unseen. So it is not let: a
connection that is gone is the end of that life, and whoever wants another joins anew.
"""

import zmq
from zmq.utils.monitor import recv_monitor_message

from infer_engine.replica.messages import LinkKeys
from infer_engine.replica.wire import HANDSHAKE_MS, HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS

CONNECT_MS = 10_000
#: What the server's gate answers to a key that it does not know.
UNKNOWN_KEY = 400
_GONE = frozenset({zmq.Event.CLOSED, zmq.Event.DISCONNECTED, zmq.Event.CONNECT_RETRIED})


class LinkLostError(Exception):
    """``str()`` says why, in words. ``refused``: the server did not accept the keys, and will not while
    nothing changes."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


class LinkWatch:
    """Prepares ``socket``, which is not connected yet, and watches it from then on."""

    def __init__(self, socket: "zmq.Socket[bytes]", keys: LinkKeys) -> None:
        for option, value in (
            (zmq.RECONNECT_IVL, -1),
            (zmq.CONNECT_TIMEOUT, CONNECT_MS),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
            (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS),
            (zmq.IPV6, 1),
        ):
            socket.setsockopt(option, value)
        socket.setsockopt(zmq.IDENTITY, keys.ticket.encode())
        socket.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(keys.server))
        socket.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(keys.public))
        socket.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(keys.secret))
        self._socket = socket
        self._public = keys.public
        self._lost: LinkLostError | None = None
        self._connected = self._proved = False
        self.monitor = socket.get_monitor_socket()

    def check(self) -> None:
        """LinkLostError once the connection is gone, or cannot be had."""
        while self._lost is None and self.monitor.poll(0):
            message = recv_monitor_message(self.monitor)
            self._hear(message["event"], message["value"])
        if self._lost is not None:
            raise self._lost

    def close(self) -> None:
        """Before the socket is closed."""
        self._socket.disable_monitor()
        self.monitor.close(linger=0)

    def _hear(self, event: int, value: int) -> None:
        if event == zmq.Event.CONNECTED:
            self._connected = True
        elif event == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._proved = True
        elif event == zmq.Event.HANDSHAKE_FAILED_AUTH and value == UNKNOWN_KEY:
            self._lost = LinkLostError(
                f"the server does not know this replica's public key {self._public}: "
                "an operator there adds it to the file of those who may join",
                refused=True,
            )
        elif event in (
            zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
            zmq.Event.HANDSHAKE_FAILED_AUTH,
            zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
        ):
            self._lost = LinkLostError(
                "the server did not accept the handshake: the key in the server-key file is not (or no "
                "longer) that of this server, or no replica server listens there",
                refused=True,
            )
        elif event in _GONE:
            self._lost = LinkLostError(self._gone())

    def _gone(self) -> str:
        if self._proved:
            return "the connection to the server is gone"
        return "the server closed the connection" if self._connected else "the server cannot be reached"
