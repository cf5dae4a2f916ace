"""A ZeroMQ socket read by the asyncio loop, without blocking and without a thread."""

import asyncio
from collections.abc import Callable
from typing import Literal

import zmq

#: Messages read before other work of the loop gets a turn.
BATCH = 256

#: full: the peer has stopped reading; unreachable: no such peer is connected.
Sent = Literal["sent", "full", "unreachable"]


class SocketReader:
    """From its making to ``close``, in the running loop. ``receive`` takes one message, zmq.Again where there
    is none; ``on_batch_end`` is called when a batch was read."""

    def __init__(
        self,
        socket: "zmq.Socket[bytes]",
        receive: "Callable[[zmq.Socket[bytes]], None]",
        on_batch_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._socket = socket
        self._receive = receive
        self._on_batch_end = on_batch_end
        #: Readable (once) when something happened to the socket.
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._due = self._closed = False
        asyncio.get_running_loop().add_reader(self._descriptor, self._pump)
        self.soon()

    def send(self, peer: bytes, message: bytes) -> Sent:
        """Through a ROUTER socket that tells of peers who are not there."""
        try:
            self._socket.send_multipart((peer, message), zmq.DONTWAIT)
        except zmq.Again:
            return "full"
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return "unreachable"
        finally:
            self.soon()
        return "sent"

    def soon(self) -> None:
        """To be called after every sending: it may swallow the edge by which the descriptor tells of
        arrivals."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def close(self) -> None:
        """The socket stays open: it is its owner's."""
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().remove_reader(self._descriptor)

    def _pump(self) -> None:
        self._due = False
        if self._closed:
            return
        for _ in range(BATCH):
            try:
                self._receive(self._socket)
            except zmq.Again:
                break
            if self._closed:  # what was read led to it
                return
        else:
            self.soon()
        self._on_batch_end()
