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
import stat
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
        raw: dict[str, Any] = tomllib.loads(_read_private(path).decode())
        return _checked(msgspec.convert(raw, _Document))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TokenFileError(f"token file {path}: {why}") from error
    except ValueError as error:
        raise TokenFileError(f"token file {path}: {error}") from error


def write_token_file(path: Path, content: TokenFile) -> None:
    """Replace the file as a whole, with mode 0600; OSError when that is not possible."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_render(content))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def changing(path: Path) -> Generator[None]:
    """While one changes the file, the others wait."""
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read_private(path: Path) -> bytes:
    """The checks are made on what was opened, so that nothing can be put in its place between them."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if path.is_symlink():
            raise ValueError("it is a symbolic link; name the file itself") from error
        raise
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise ValueError("it is not a regular file")
        if info.st_uid != os.geteuid():
            raise ValueError(f"it belongs to uid {info.st_uid}, the server runs as uid {os.geteuid()}")
        if info.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ValueError(f"others may use it (mode {stat.S_IMODE(info.st_mode):04o}); chmod 600 it")
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it is longer than {MAX_FILE_BYTES} bytes")
    return content


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
