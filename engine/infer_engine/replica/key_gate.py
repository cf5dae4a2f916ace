"""Who gets past the handshake of the replica link over TCP: ZeroMQ asks here (its ZAP, RFC 27) for every
connection, once the peer has proved that the key is its own."""

import logging
from collections.abc import Callable

import zmq

from infer_engine.replica.socket_reader import SocketReader

log = logging.getLogger(__name__)

ENDPOINT = "inproc://zeromq.zap.01"
#: A socket with this domain lets nobody in while nobody answers here.
DOMAIN = b"replicas"
VERSION = b"1.0"
REQUEST_FRAMES = 9
#: Refusals are logged at most this often.
LOG_PERIOD_S = 5.0


class KeyGate:
    """``known`` says whether a public key (32 bytes) may connect. Those that may carry it, as hexadecimal
    digits, as the User-Id of all their messages. Open it before the socket that it guards."""

    def __init__(self, known: Callable[[bytes], bool], clock: Callable[[], float]) -> None:
        self._known = known
        self._clock = clock
        self._socket: zmq.Socket[bytes] | None = None
        self._reader: SocketReader | None = None
        self._logged_s = float("-inf")
        #: Refused since the start.
        self.refused = 0

    def open(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ENDPOINT)
        self._reader = SocketReader(self._socket, self._answer)

    def close(self) -> None:
        if self._reader is not None and self._socket is not None:
            self._reader.close()
            self._socket.close()
        self._reader = self._socket = None

    def _answer(self, socket: "zmq.Socket[bytes]") -> None:
        frames = socket.recv_multipart(zmq.DONTWAIT)
        if len(frames) < REQUEST_FRAMES:
            log.warning("ZeroMQ asked for a key in %d frames", len(frames))
            return
        asker, _, version, number, domain, address, _, mechanism, key = frames[:REQUEST_FRAMES]
        proper = version == VERSION and domain == DOMAIN and mechanism == b"CURVE"
        allowed = proper and self._known(key)
        if not allowed:
            self._refuse(key, address)
        status = (b"200", b"", key.hex().encode()) if allowed else (b"400", b"unknown key", b"")
        socket.send_multipart((asker, b"", VERSION, number, *status, b""), zmq.DONTWAIT)
        if self._reader is not None:
            self._reader.soon()

    def _refuse(self, key: bytes, address: bytes) -> None:
        self.refused += 1
        now_s = self._clock()
        if now_s - self._logged_s < LOG_PERIOD_S:
            return
        self._logged_s = now_s
        log.warning(
            "refused a replica at %s: its key %s is not among those who may join (%d refused so far)",
            ascii(address.decode(errors="replace"))[1:-1],
            key.hex(),
            self.refused,
        )
