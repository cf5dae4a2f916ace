"""Connections to a control socket on another machine: each is an ssh process whose other end runs
``infer-console proxy``, which joins it to the socket there. Who may come in is ssh's to say."""

import asyncio
import contextlib
import os
from collections.abc import Iterable
from typing import Any

import httpcore2
import httpx2
from infer_engine.idle_connections import KEEP_S

from infer_console.connect import SshHost
from infer_console.credentials import without_token
from infer_console.proxy import GREETING

#: From starting ssh to the greeting of the proxy.
CONNECT_TIMEOUT_S = 15.0
#: What a login shell may print before the proxy speaks.
MAX_BANNER_BYTES = 64 * 1024
#: The end of what ssh complains about, for the operator.
MAX_COMPLAINT_BYTES = 2_048
END_TIMEOUT_S = 2.0
#: A console needs a handful; each is a process on both machines.
MAX_CONNECTIONS = 8

_OPTIONS = (
    "-T",
    "-a",
    "-x",
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oClearAllForwardings=yes",
)


def ssh_command(ssh: SshHost) -> list[str]:
    """The words to start. Nothing of the URL can be an option: ``--`` stands before it."""
    destination = ssh.host if ssh.user is None else f"{ssh.user}@{ssh.host}"
    port = () if ssh.port is None else ("-p", str(ssh.port))
    there = ["infer-console", "proxy", "--greet"]
    if ssh.control is not None:
        there += ["--control", f"unix://{ssh.control}"]  # checked: holds nothing a shell would see
    return ["ssh", *_OPTIONS, *port, "--", destination, " ".join(there)]


class SshTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, ssh: SshHost) -> None:
        super().__init__(trust_env=False)
        self._pool = httpcore2.AsyncConnectionPool(
            network_backend=_Backend(ssh), max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEP_S
        )


class _Backend(httpcore2.AsyncNetworkBackend):
    def __init__(self, ssh: SshHost) -> None:
        self._command = ssh_command(ssh)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=without_token(os.environ),
                limit=MAX_BANNER_BYTES,
                start_new_session=True,  # the keys of our terminal are not for it
            )
        except OSError as error:
            raise httpcore2.ConnectError(f"ssh cannot be started: {error.strerror or error}") from error
        stream = _Stream(process)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await stream.greeted()
        except TimeoutError as error:
            await stream.aclose()
            raise httpcore2.ConnectError(f"ssh: no answer within {CONNECT_TIMEOUT_S:g} s") from error
        except BaseException:
            await stream.aclose()
            raise
        return stream

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Stream(httpcore2.AsyncNetworkStream):
    """Owns the process: ``aclose`` ends it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._complaint = b""
        self._listening = asyncio.create_task(self._listen(process.stderr))

    async def greeted(self) -> None:
        """Past whatever the login printed, until the proxy there says that it has the socket."""
        skipped = 0
        while True:
            try:
                line = await self._stdout.readline()
            except ValueError as error:  # a line without an end
                raise httpcore2.ConnectError("ssh: the other side says too much") from error
            if line.strip() == GREETING:
                return
            skipped += len(line)
            if not line or skipped > MAX_BANNER_BYTES:
                raise httpcore2.ConnectError(f"ssh: {await self._why()}")

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        try:
            async with asyncio.timeout(timeout):
                return await self._stdout.read(max_bytes)
        except TimeoutError as error:
            raise httpcore2.ReadTimeout from error
        except OSError as error:
            raise httpcore2.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        try:
            async with asyncio.timeout(timeout):
                self._stdin.write(buffer)
                await self._stdin.drain()
        except TimeoutError as error:
            raise httpcore2.WriteTimeout from error
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from error

    async def aclose(self) -> None:
        self._stdin.close()
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            self._process.kill()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        with contextlib.suppress(TimeoutError):  # its exit status is collected later
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._process.wait()

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # asked of an idle connection: has its other side gone?
            return self._process.returncode is not None or self._stdout.at_eof()
        return None

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(MAX_COMPLAINT_BYTES):
            self._complaint = (self._complaint + chunk)[-MAX_COMPLAINT_BYTES:]

    async def _why(self) -> str:
        """The last line of what ssh, or the proxy through it, complained about."""
        await asyncio.wait({self._listening}, timeout=END_TIMEOUT_S)
        lines = self._complaint.decode("utf-8", "replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return said[-1][:200] if said else "the connection ended before it began"
