"""Who is at the other end of a connection, as the kernel or the TLS handshake knows it."""

import socket
import struct
from dataclasses import dataclass
from typing import Any

#: Linux's socket option for all groups of the peer; Python has no name for it.
SO_PEERGROUPS = 59
MAX_GROUPS = 1_024
_UCRED = struct.Struct("iii")


@dataclass(frozen=True, slots=True)
class PeerProcess:
    """The process that opened a unix connection, when it did."""

    pid: int
    uid: int
    gids: frozenset[int]


def peer_process(sock: Any) -> PeerProcess | None:
    """None for a socket that is no unix socket, or where the system does not tell."""
    if sock is None or sock.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, gid = _UCRED.unpack(raw)
    except OSError:
        return None
    try:
        groups = sock.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4 * MAX_GROUPS)
        gids = struct.unpack(f"{len(groups) // 4}I", groups)
    except OSError:  # an old kernel, or more groups than anybody has: its first group is known
        gids = ()
    return PeerProcess(pid, uid, frozenset((gid, *gids)))


def certificate_names(certificate: Any) -> tuple[str, ...]:
    """The common name and the alternative DNS and e-mail names of a verified client certificate, as
    ``ssl`` gives it; none of no certificate."""
    if not certificate:
        return ()
    names = [
        value
        for distinguished in certificate.get("subject", ())
        for key, value in distinguished
        if key == "commonName"
    ]
    names += [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "email")]
    return tuple(names)
