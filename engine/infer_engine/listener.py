"""An HTTP listener that no client can hold: uvicorn on a socket that is bound already, with limits on
connections, a deadline for request heads, and an end that neither waits for a client nor logs its fault as
ours."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Generator
from typing import Any, ClassVar, NamedTuple

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from infer_engine.connections import Connections, Verdict
from infer_engine.peer import peer_process

log = logging.getLogger(__name__)

#: From the first byte of a request (or the connection's start) to the end of its head.
HEAD_DEADLINE_S = 10.0
#: Largest request head.
MAX_HEAD_BYTES = 16 * 1024
#: At shutdown, how long responses may take to end before their connections are cut.
CLOSE_GRACE_S = 2.0
#: Simultaneous connections on one listener where nobody said.
MAX_CONNECTIONS = 1_024
#: What one connection's unsent answer may hold in this process before its writer has to wait.
WRITE_BUFFER_BYTES = 16 * 1024
#: Bytes of further requests that are kept while one is being answered.
MAX_PIPELINED_BYTES = 64 * 1024
#: From a connection's start to the end of its TLS handshake.
HANDSHAKE_DEADLINE_S = 10.0

App = Callable[..., Any]


class Malformed(NamedTuple):
    """The answer to what is no HTTP request."""

    content_type: bytes
    body: bytes


class GuardedProtocol(H11Protocol):
    """What uvicorn leaves open. It has no deadline for request heads; it stops reading, and so does not see
    a client leave, while a further request waits behind the one that is being answered, or while an answer
    waits to be sent; and an application cannot cut a connection that takes no bytes: here
    ``scope["state"]["abort"]`` does, and the application then sees an ordinary disconnect. ``peer`` and
    ``certificate`` beside it say who is at the other end, as far as that is known."""

    #: Set by the listener that makes the class.
    limits: ClassVar[Connections]
    refusal: ClassVar[App]
    malformed: ClassVar["Malformed"]

    _deadline: asyncio.TimerHandle | None = None
    _verdict: Verdict | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._verdict = self.limits.enter(self._address())
        if self._verdict == "cut":
            transport.abort()
            return
        if self._verdict == "refused":
            self.app = self.refusal
        self.app_state = {
            **self.app_state,
            "abort": transport.abort,
            "peer": peer_process(transport.get_extra_info("socket")),
            "certificate": transport.get_extra_info("peercert"),
        }
        self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._awaits_head():
            self._arm()
        else:
            self._disarm()
            self._read_on()

    def eof_received(self) -> None:
        """The client has closed its side. An answer that is not complete has lost its reader, even while
        bytes of it still wait to be sent."""
        if not self._awaits_head():
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """In the shape of this listener's other errors. While an answer is under way nothing can be said."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        headers = [
            (b"content-type", self.malformed.content_type),
            (b"content-length", str(len(self.malformed.body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=self.malformed.body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._verdict is not None:
            self.limits.leave(self._address(), self._verdict)
            self._verdict = None
        super().connection_lost(exc)

    def _read_on(self) -> None:
        """A request that waits behind this one's answer is kept, within bounds, and reading goes on."""
        if self.conn.their_state is not h11.DONE or not self.flow.read_paused:
            return
        waiting, _ = self.conn.trailing_data
        if len(waiting) > MAX_PIPELINED_BYTES:
            log.info("cutting a connection that sent too much behind an unanswered request")
            self.transport.abort()
        else:
            self.flow.resume_reading()

    def _address(self) -> str | None:
        return self.client[0] if self.client else None

    def _awaits_head(self) -> bool:
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete

    def _arm(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_DEADLINE_S, self._too_late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self._awaits_head():
            self.transport.abort()


MALFORMED = Malformed(b"text/plain; charset=utf-8", b"That is no HTTP request.")


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals belong to the process that owns several listeners, not to one of them."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it, but with a deadline for TLS handshakes."""
        loop = asyncio.get_running_loop()
        tls = self.config.ssl
        protocol: Any = self.config.http_protocol_class
        self.servers = [
            await loop.create_server(
                lambda: protocol(self.config, self.server_state, {}),
                sock=sock,
                ssl=tls,
                backlog=self.config.backlog,
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_DEADLINE_S,
            )
            for sock in sockets or ()
        ]
        self.started = True


class Listener:
    """Serves ``app`` on a bound ``sock`` from ``start`` until ``close``, over TLS where ``tls`` is given.
    ``refusal`` answers those who are beyond ``limits``; it must end their connections. ``malformed`` is the
    answer to what is no HTTP request, or has a head of more than MAX_HEAD_BYTES."""

    def __init__(
        self,
        app: App,
        sock: socket.socket,
        *,
        limits: Connections | None = None,
        refusal: App | None = None,
        tls: ssl.SSLContext | None = None,
        malformed: Malformed = MALFORMED,
    ) -> None:
        self.limits = limits or Connections(most=MAX_CONNECTIONS)
        bounds = {
            "limits": self.limits,
            "refusal": staticmethod(refusal or _too_many),
            "malformed": malformed,
        }
        config = uvicorn.Config(
            app,
            http=type("BoundProtocol", (GuardedProtocol,), bounds),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ssl_context_factory=None if tls is None else (lambda _config, _default: tls),
            # A last resort only: close() cuts what is left long before.
            timeout_graceful_shutdown=int(CLOSE_GRACE_S) + 5,
        )
        self._server = _Server(config)
        self._socket = sock
        self._task: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    async def start(self) -> None:
        """Return when connections are accepted."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise RuntimeError("the listener ended before it started")
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Stop accepting, let responses end, cut what has not ended after the grace time."""
        if self._task is None:
            self._socket.close()
            return
        self._server.should_exit = True
        done, _ = await asyncio.wait({self._task}, timeout=CLOSE_GRACE_S)
        if not done:
            self._cut_connections()
        await self._task

    def _cut_connections(self) -> None:
        connections = list(self._server.server_state.connections)
        log.info("cutting %d connections that did not end in time", len(connections))
        for connection in connections:
            transport: Any = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()


async def _too_many(_scope: Any, _receive: Any, send: Any) -> None:
    headers = [(b"connection", b"close"), (b"content-length", b"0"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
