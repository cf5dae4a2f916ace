"""Both ways to replicas as one: the unix socket of those on this machine, and TCP for all others."""

from infer_engine.replica.messages import ToReplica
from infer_engine.replica.server_link import Link
from infer_engine.replica.socket_reader import Sent
from infer_engine.replica.tcp_link import TcpLink


class Links:
    """A life with a ticket of the TCP link is reached there, all others at the local one, whose endpoint this
    has."""

    def __init__(self, local: Link, tcp: TcpLink) -> None:
        self._local = local
        self._tcp = tcp

    @property
    def endpoint(self) -> str:
        return self._local.endpoint

    @property
    def malformed(self) -> int:
        return self._local.malformed + self._tcp.malformed

    def open(self) -> None:
        self._local.open()
        self._tcp.open()

    def close(self) -> None:
        self._tcp.close()
        self._local.close()

    def send(self, peer: bytes, message: ToReplica) -> Sent:
        return self._tcp.send(peer, message) if self._tcp.has(peer) else self._local.send(peer, message)
