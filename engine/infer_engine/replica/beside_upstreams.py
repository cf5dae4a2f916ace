"""The way to replicas of ours and to servers of others as one."""

from collections.abc import Callable
from pathlib import Path

from infer_engine.replica.messages import ToReplica
from infer_engine.replica.server_link import Link, MakeLink, OnMessage
from infer_engine.replica.socket_reader import Sent
from infer_engine.replica.upstream.launch import UpstreamReplicas


def beside(upstreams: UpstreamReplicas, link: MakeLink) -> MakeLink:
    """Make ``link`` for replicas of ours; the others are reached in this process."""

    def make(directory: Path, on_message: OnMessage, on_batch_end: Callable[[], None]) -> Link:
        theirs = upstreams.link(directory, on_message, on_batch_end)
        return _BothLinks(link(directory, on_message, on_batch_end), theirs, upstreams)

    return make


class _BothLinks:
    """Who lives in this process is reached there, all others at the socket, whose endpoint this has."""

    def __init__(self, ours: Link, theirs: Link, upstreams: UpstreamReplicas) -> None:
        self._ours = ours
        self._theirs = theirs
        self._upstreams = upstreams

    @property
    def endpoint(self) -> str:
        return self._ours.endpoint

    @property
    def malformed(self) -> int:
        return self._ours.malformed

    def open(self) -> None:
        self._ours.open()
        self._theirs.open()

    def close(self) -> None:
        self._theirs.close()
        self._ours.close()

    def send(self, peer: bytes, message: ToReplica) -> Sent:
        here = peer in self._upstreams.by_identity
        return (self._theirs if here else self._ours).send(peer, message)
