"""The file that says who may call the control API: tokens, and subjects of client certificates.

TOML::

    [[tokens]]
    id = "4f1d9a20"
    name = "alice"
    role = "operator"
    sha256 = "..."
    expires = 2027-01-31T00:00:00Z      # optional

    [[certificates]]
    name = "bastion.example"            # the certificate's common name, or one of its DNS or e-mail names
    role = "viewer"
"""

import fcntl
import os
import re
import tomllib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from infer_engine.control.roles import parse_role
from infer_engine.control.tokens import NAME, Token
from infer_engine.protocol import Role
from infer_engine.secret_file import SecretFileError, read_secret_file, write_secret_file

MAX_FILE_BYTES = 1024 * 1024
MAX_ENTRIES = 1_000
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HEAD = (
    "# Who may call the control API. Made by infer-console token; SIGHUP makes the server read it again.\n"
)


class TokenFileError(Exception):
    """The file cannot be used; ``str()`` says which and why, in one line."""


@dataclass(frozen=True, slots=True)
class Certificate:
    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class TokenFile:
    tokens: tuple[Token, ...] = ()
    certificates: tuple[Certificate, ...] = ()


class _TokenEntry(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]{1,64}$")]
    name: str
    role: str
    sha256: str
    expires: datetime | None = None


class _CertificateEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[ -~]{1,128}$")]
    role: str


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    tokens: Annotated[list[_TokenEntry], msgspec.Meta(max_length=MAX_ENTRIES)] = []
    certificates: Annotated[list[_CertificateEntry], msgspec.Meta(max_length=MAX_ENTRIES)] = []


def read_token_file(path: Path) -> TokenFile:
    """What the file says; TokenFileError where it is not ours alone, or one of its entries is wrong. Never
    less than the whole file."""
    try:
        raw: dict[str, Any] = tomllib.loads(read_secret_file(path, max_bytes=MAX_FILE_BYTES).decode())
        return _checked(msgspec.convert(raw, _Document))
    except SecretFileError as error:
        raise TokenFileError(f"token file {error}") from error
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8 and of the types too
        raise TokenFileError(f"token file {path}: {error}") from error


def write_token_file(path: Path, content: TokenFile) -> None:
    """Replace the file as a whole, with mode 0600; TokenFileError when that is not possible."""
    try:
        write_secret_file(path, _render(content).encode())
    except SecretFileError as error:
        raise TokenFileError(f"token file {error}") from error


@contextmanager
def changing(path: Path) -> Generator[None]:
    """While one changes the file, the others wait."""
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _checked(document: _Document) -> TokenFile:
    tokens: list[Token] = []
    for number, entry in enumerate(document.tokens, 1):
        where = f"token {number} ({ascii(entry.id)[1:-1]})"
        if not NAME.fullmatch(entry.name):
            raise ValueError(f"{where}: name: 1 to 64 of the characters A-Z, a-z, 0-9 and . _ @ -")
        if not _SHA256.fullmatch(entry.sha256):
            raise ValueError(f"{where}: sha256: expected 64 hexadecimal digits in small letters")
        if entry.expires is not None and entry.expires.tzinfo is None:
            raise ValueError(f"{where}: expires: expected a time with its zone, like 2027-01-31T00:00:00Z")
        tokens.append(
            Token(
                id=entry.id,
                name=entry.name,
                role=_role(where, entry.role),
                sha256=entry.sha256,
                expires=entry.expires,
            )
        )
    if len({token.id for token in tokens}) < len(tokens):
        raise ValueError("two tokens have the same id")
    if len({entry.name for entry in document.certificates}) < len(document.certificates):
        raise ValueError("two certificates have the same name")
    return TokenFile(
        tuple(tokens),
        tuple(
            Certificate(entry.name, _role(f"certificate {entry.name!a}", entry.role))
            for entry in document.certificates
        ),
    )


def _role(where: str, text: str) -> Role:
    try:
        return parse_role(text)
    except ValueError as error:
        raise ValueError(f"{where}: role: {error}") from error


def _render(content: TokenFile) -> str:
    """Ids, names, roles and digests hold nothing that TOML would need escaped; names of certificates may."""
    return _HEAD + "".join([*map(_token, content.tokens), *map(_certificate, content.certificates)])


def _token(token: Token) -> str:
    lines = [f'id = "{token.id}"', f'name = "{token.name}"', f'role = "{token.role}"']
    lines.append(f'sha256 = "{token.sha256}"')
    if token.expires is not None:
        lines.append(f"expires = {token.expires.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
    return "\n[[tokens]]\n" + "".join(f"{line}\n" for line in lines)


def _certificate(certificate: Certificate) -> str:
    # A JSON string is a basic string of TOML too.
    name = msgspec.json.encode(certificate.name).decode()
    return f'\n[[certificates]]\nname = {name}\nrole = "{certificate.role}"\n'


def without(tokens: Sequence[Token], token_id: str) -> tuple[Token, ...]:
    return tuple(token for token in tokens if token.id != token_id)
