"""A certificate authority for tests, a server's certificate for this machine and a client's, made by the
openssl command."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificates:
    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path


def make_certificates(directory: Path, client_name: str = "bastion") -> Certificates:
    ca, ca_key = directory / "ca.pem", directory / "ca.key"
    _openssl("req", "-x509", *_key(ca_key), "-out", ca, "-days", "2", "-subj", "/CN=test authority")
    made: dict[str, Path] = {}
    for role, subject, names in (
        ("server", "/CN=localhost", "subjectAltName=DNS:localhost,DNS:fleet.example,IP:127.0.0.1"),
        ("client", f"/CN={client_name}", f"subjectAltName=DNS:{client_name}.example"),
    ):
        cert, key = directory / f"{role}.pem", directory / f"{role}.key"
        _openssl(
            "req", "-x509", *_key(key), "-out", cert, "-days", "2", "-subj", subject,
            "-CA", ca, "-CAkey", ca_key, "-addext", names, "-addext", "basicConstraints=critical,CA:false",
        )  # fmt: skip
        made |= {f"{role}_cert": cert, f"{role}_key": key}
    return Certificates(ca, **made)


def server_context(certificates: Certificates, names: set[str | None]) -> ssl.SSLContext:
    """A server's, which notes by what name it is asked for (None without one)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server_cert, certificates.server_key)
    context.sni_callback = lambda _socket, name, _context: names.add(name)
    return context


def _key(path: Path) -> tuple[object, ...]:
    return "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path


def _openssl(*words: object) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
