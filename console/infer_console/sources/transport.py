"""The way to an engine server: a socket, TCP with or without TLS, through ssh, or to a server that is not
ours."""

import ssl

import httpx2
from infer_engine.idle_connections import limits

from infer_console.connect import Target
from infer_console.sources.failures import UnreachableError


def transport(target: Target) -> httpx2.AsyncBaseTransport:
    if target.watched:
        # Imported late: most consoles watch servers of ours.
        from infer_console.sources.foreign.transport import ForeignTransport

        trusted = _trusted(target) if target.tls else False

        def to_server() -> httpx2.AsyncBaseTransport:
            return httpx2.AsyncHTTPTransport(verify=trusted, trust_env=False, limits=limits())

        return ForeignTransport(target, to_server)
    if target.ssh is not None:
        # Imported late: most consoles never start a process for this.
        from infer_console.sources.ssh import SshTransport

        return SshTransport(target.ssh)
    if target.socket is not None:
        # A socket has no TLS; to load the authorities' certificates would only take its time.
        return httpx2.AsyncHTTPTransport(uds=target.socket, trust_env=False, verify=False, limits=limits())
    return httpx2.AsyncHTTPTransport(verify=_trusted(target), trust_env=False, limits=limits())


def _trusted(target: Target) -> ssl.SSLContext | bool:
    """What vouches for an ``https://`` server."""
    if not target.tls:
        return True
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UnreachableError(
            target.url, f"ca-file {target.ca_file}: {getattr(error, 'strerror', None) or error}", sent=False
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def authorization(target: Target) -> dict[str, str]:
    return {} if target.token is None else {"authorization": f"Bearer {target.token}"}
