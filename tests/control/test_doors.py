"""The control API's real listeners: unix socket, TCP on loopback, TLS."""

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from infer_engine.bounded_socket import BoundedSocket
from infer_engine.control.context import Context
from infer_engine.control.doors import Doors, admission
from infer_engine.control.token_file import Certificate, TokenFile, read_token_file, write_token_file
from infer_engine.control.tokens import new_token
from infer_engine.exposure import check_gateway
from infer_engine.settings import ServerSettings, SettingsError
from infer_engine.sockets import bind_tcp, bind_unix
from support.certificates import Certificates, make_certificates
from support.eventually import eventually
from support.server import serving

VIEWER, VIEWER_TEXT = new_token("ann", "viewer")
OPERATOR, OPERATOR_TEXT = new_token("bob", "operator")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    write_token_file(path, TokenFile((VIEWER, OPERATOR), (Certificate("bastion", "operator"),)))
    return path


@asynccontextmanager
async def open_doors(
    context: Context, directory: Path, settings: ServerSettings, most: int = 50
) -> AsyncGenerator[tuple[Doors, int]]:
    tcp = BoundedSocket(bind_tcp("127.0.0.1", 0, or_free_port=False), most)
    unix = bind_unix(directory / "doors.sock")
    port: int = tcp.getsockname()[1]
    doors = Doors(context, admission(settings), settings.control_hosts, unix, tcp)
    await doors.start()
    try:
        yield doors, port
    finally:
        context.stopping.set()
        await doors.close()


def plain(token_file: Path) -> ServerSettings:
    return ServerSettings(control_listen="127.0.0.1:0", token_file=str(token_file))


def secured(token_file: Path, made: Certificates) -> ServerSettings:
    return ServerSettings(
        control_listen="127.0.0.1:0",
        token_file=str(token_file),
        tls_cert=str(made.server_cert),
        tls_key=str(made.server_key),
        tls_client_ca=str(made.ca),
    )


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


async def test_unix_is_the_owners_and_tcp_is_for_tokens(
    context: Context, directory: Path, token_file: Path
) -> None:
    async with open_doors(context, directory, plain(token_file)) as (_, port):
        by_unix = httpx2.AsyncHTTPTransport(uds=str(directory / "doors.sock"))
        async with httpx2.AsyncClient(transport=by_unix, base_url="http://localhost") as client:
            hello = (await client.get("/control/v1/hello")).json()
        assert (hello["role"], hello["subject"]) == ("admin", f"uid:{os.geteuid()}")
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            assert (await client.get("/control/v1/hello")).status_code == 401
            hello = (await client.get("/control/v1/hello", headers=bearer(VIEWER_TEXT))).json()
            assert (hello["role"], hello["subject"]) == ("viewer", "ann")
            drain = "/control/v1/replicas/r0:drain"
            answers = [
                (await client.post(drain, json={}, headers=bearer(text))).status_code
                for text in (VIEWER_TEXT, OPERATOR_TEXT)
            ]
            assert answers == [403, 409]  # the operator's is looked at: r0 still loads
            large = {"authorization": f"Bearer {OPERATOR_TEXT}", "content-type": "application/json"}
            big = await client.post(drain, content=b" " * 70_000, headers=large)
            assert big.status_code == 413


async def test_tls_asks_for_a_token_or_a_certificate(
    context: Context, directory: Path, token_file: Path, certificates: Certificates
) -> None:
    async with open_doors(context, directory, secured(token_file, certificates)) as (_, port):
        trust = ssl.create_default_context(cafile=str(certificates.ca))
        url = f"https://localhost:{port}"
        async with httpx2.AsyncClient(base_url=url, verify=trust, trust_env=False) as client:
            assert (await client.get("/control/v1/hello")).status_code == 401
            assert (await client.get("/control/v1/hello", headers=bearer(VIEWER_TEXT))).status_code == 200
        trust = ssl.create_default_context(cafile=str(certificates.ca))
        trust.load_cert_chain(certificates.client_cert, certificates.client_key)
        async with httpx2.AsyncClient(base_url=url, verify=trust, trust_env=False) as client:
            hello = (await client.get("/control/v1/hello")).json()
        assert (hello["role"], hello["subject"]) == ("operator", "bastion")
        old = ssl.create_default_context(cafile=str(certificates.ca))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert await handshake(port, old) == "TLSv1.2"


async def handshake(port: int, trust: ssl.SSLContext) -> str | None:
    _, writer = await asyncio.open_connection("localhost", port, ssl=trust)
    version: str = writer.get_extra_info("ssl_object").version()
    writer.close()
    await writer.wait_closed()
    return version


async def test_slow_handshakes_are_cut_and_connections_bounded(
    context: Context,
    directory: Path,
    token_file: Path,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("infer_engine.listener.HANDSHAKE_DEADLINE_S", 1.0)
    async with open_doors(context, directory, secured(token_file, certificates), most=2) as (_, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        one_more, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await read_end(one_more) == b""  # at once: it was never taken
        for reader, each in silent:
            assert await read_end(reader) == b""
            each.close()
        writer.close()


async def test_a_head_that_never_ends_is_cut_behind_tls_too(
    context: Context,
    directory: Path,
    token_file: Path,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("infer_engine.listener.HEAD_DEADLINE_S", 0.2)
    async with open_doors(context, directory, secured(token_file, certificates)) as (_, port):
        trust = ssl.create_default_context(cafile=str(certificates.ca))
        reader, writer = await asyncio.open_connection("localhost", port, ssl=trust)
        writer.write(b"GET /control/v1/state HTTP/1.1\r\nHost: loc")
        assert await read_end(reader) == b""
        writer.close()


async def read_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""


async def test_a_revoked_token_ends_its_streams_and_a_broken_file_changes_nothing(
    context: Context, directory: Path, token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_doors(context, directory, plain(token_file)) as (doors, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"Host: localhost\r\nAuthorization: Bearer {VIEWER_TEXT}\r\n\r\n"
        writer.write(f"GET /control/v1/watch HTTP/1.1\r\n{head}".encode())
        assert b" 200 " in await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)
        token_file.chmod(0o644)  # noqa: ASYNC240
        doors.reload()
        assert "those who were known before still are" in caplog.text
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            state = "/control/v1/state"
            assert (await client.get(state, headers=bearer(VIEWER_TEXT))).status_code == 200
            write_token_file(token_file, TokenFile((OPERATOR,)))
            doors.reload()
            await read_end(reader)
            assert (await client.get(state, headers=bearer(VIEWER_TEXT))).status_code == 401
            assert (await client.get(state, headers=bearer(OPERATOR_TEXT))).status_code == 200
        writer.close()


def test_a_server_reads_its_tokens_again_when_it_is_told_to(token_file: Path) -> None:
    with (
        serving(ready=False, token_file=str(token_file), control_listen="127.0.0.1:0") as server,
        httpx2.Client(base_url=server.hello["control_tcp"], trust_env=False) as client,
    ):

        def status(text: str) -> int:
            return client.get("/control/v1/hello", headers=bearer(text)).status_code

        assert (status(VIEWER_TEXT), status(OPERATOR_TEXT)) == (200, 200)
        write_token_file(token_file, TokenFile((OPERATOR,)))
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: status(VIEWER_TEXT) == 401)
        assert status(OPERATOR_TEXT) == 200


def test_what_is_not_safe_does_not_start(
    tmp_path: Path, token_file: Path, certificates: Certificates
) -> None:
    key, cert = str(certificates.server_key), str(certificates.server_cert)
    for settings, says in (
        ({"control_listen": "127.0.0.1:0"}, "only with a token file"),
        ({"control_listen": "0.0.0.0:0", "token_file": str(token_file)}, "in the clear"),
        ({"control_listen": "fleet.example:0", "token_file": str(token_file)}, "in the clear"),
        ({"control_groups": {"no-such-group": "viewer"}}, "no group"),
        ({"control_groups": {"0": "king"}}, "expected one of"),
        (
            {"control_listen": "[::1]:0", "token_file": str(token_file), "tls_cert": key, "tls_key": cert},
            "tls_cert",
        ),
    ):
        with pytest.raises(SettingsError, match=says):
            admission(ServerSettings(**settings))  # type: ignore[arg-type]
    for broken in ({"tls_cert": cert}, {"tls_cert": cert, "tls_key": key}, {"tls_client_ca": cert}):
        with pytest.raises(ValueError, match="tls_"):
            ServerSettings(**broken)
    for host in ("0.0.0.0", "::", "192.168.1.4", "box.example"):
        with pytest.raises(SettingsError, match="--insecure-no-auth"):
            check_gateway(host, has_keys=False, insecure_no_auth=False)
        check_gateway(host, has_keys=True, insecure_no_auth=False)
        check_gateway(host, has_keys=False, insecure_no_auth=True)
    check_gateway("127.0.0.1", has_keys=False, insecure_no_auth=False)
    assert read_token_file(token_file).tokens == (VIEWER, OPERATOR)
