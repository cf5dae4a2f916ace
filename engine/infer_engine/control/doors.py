"""The control API's listeners and who gets in: a unix socket always, TCP where that was asked for and is
safe."""

import asyncio
import grp
import logging
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infer_engine.control.api import build_control
from infer_engine.control.authentication import Authenticator
from infer_engine.control.backoff import FailureLog
from infer_engine.control.context import Context
from infer_engine.control.problems import malformed_request
from infer_engine.control.roles import parse_role
from infer_engine.control.sessions import Sessions
from infer_engine.control.token_file import TokenFile, TokenFileError, read_token_file
from infer_engine.exposure import check_control
from infer_engine.listener import Listener
from infer_engine.protocol import Role
from infer_engine.settings import ServerSettings, SettingsError
from infer_engine.sockets import parse_listen

log = logging.getLogger(__name__)

#: How often it is looked for tokens that expired while their bearer is connected.
EXPIRY_POLL_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Who may come in, read from settings and files before anything listens."""

    groups: Mapping[int, Role]
    #: Its members may open the socket; the first of ``groups``.
    socket_group: int | None
    token_file: Path | None
    known: TokenFile
    tls: ssl.SSLContext | None
    certificate: tuple[str, str] | None


def admission(settings: ServerSettings) -> Admission:
    """SettingsError for what is not safe or does not exist, TokenFileError for a file that cannot be used."""
    path = None if settings.token_file is None else Path(settings.token_file)
    known = TokenFile() if path is None else read_token_file(path)
    if settings.control_listen is not None:
        host, _ = parse_listen(settings.control_listen, "control_listen")
        check_control(host, has_tokens=path is not None, has_tls=settings.tls_cert is not None)
    groups: dict[int, Role] = {}
    for name, role in settings.control_groups.items():
        groups[_group(name)] = _role(name, role)
    certificate = (
        None
        if settings.tls_cert is None or settings.tls_key is None
        else (settings.tls_cert, settings.tls_key)
    )
    return Admission(
        groups=groups,
        socket_group=next(iter(groups), None),
        token_file=path,
        known=known,
        tls=None if certificate is None else _tls(certificate, settings.tls_client_ca),
        certificate=certificate,
    )


class Doors:
    """Serves the control API until ``close``; ``reload`` reads the token file and the certificate again."""

    def __init__(
        self,
        context: Context,
        admitted: Admission,
        names: tuple[str, ...],
        control: socket.socket,
        control_tcp: socket.socket | None,
    ) -> None:
        self._admitted = admitted
        self._sessions = Sessions()
        self._authenticator = Authenticator(
            owner_uid=os.geteuid(),
            groups=admitted.groups,
            known=admitted.known,
            wall=time.time,
            failures=FailureLog(time.monotonic),
        )
        app = build_control(context, authenticator=self._authenticator, sessions=self._sessions, names=names)
        malformed = malformed_request()
        self._listeners = [Listener(app, control, malformed=malformed)]
        if control_tcp is not None:
            self._listeners.append(Listener(app, control_tcp, tls=admitted.tls, malformed=malformed))
        self._expiring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when connections are accepted."""
        for listener in self._listeners:
            await listener.start()
        self._expiring = asyncio.create_task(self._cut_expired())

    async def close(self) -> None:
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.gather(self._expiring, return_exceptions=True)
        await asyncio.gather(*(listener.close() for listener in self._listeners))

    def reload(self) -> None:
        """What cannot be read leaves everything as it was: it neither opens the door nor locks everybody
        out."""
        if self._admitted.token_file is None:
            return
        try:
            known = read_token_file(self._admitted.token_file)
        except TokenFileError as error:
            log.error("%s; those who were known before still are", error)
            return
        self._authenticator.known = known
        cut = self._sessions.cut(self._authenticator.still_holds)
        log.info("%d tokens and %d certificates are known now; %d connections were cut",
                 len(known.tokens), len(known.certificates), cut)  # fmt: skip
        self._reload_certificate()

    def _reload_certificate(self) -> None:
        tls, certificate = self._admitted.tls, self._admitted.certificate
        if tls is None or certificate is None:
            return
        try:
            tls.load_cert_chain(*certificate)
        except (OSError, ssl.SSLError) as error:
            log.error("tls_cert %s: %s; the certificate from before is used", certificate[0], error)

    async def _cut_expired(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_POLL_S)
            self._sessions.cut(self._authenticator.still_holds)


def _group(name: str) -> int:
    try:
        return int(name) if name.isascii() and name.isdigit() else grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise SettingsError(f"control_groups: there is no group {name!a}") from error


def _role(group: str, text: str) -> Role:
    try:
        return parse_role(text)
    except ValueError as error:
        raise SettingsError(f"control_groups: {group!a}: {error}") from error


def _tls(certificate: tuple[str, str], client_ca: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key with a passphrase would ask for it on the terminal, for ever.
        context.load_cert_chain(*certificate, password=_no_passphrase)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise SettingsError(f"tls_cert {certificate[0]}, tls_key {certificate[1]}: {_why(error)}") from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"tls_client_ca {client_ca}: {_why(error)}") from error
        # Optional: a caller without a certificate may still show a token.
        context.verify_mode = ssl.VerifyMode.CERT_OPTIONAL
    return context


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted; give one without a passphrase, readable by the server alone")


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or repr(error)
