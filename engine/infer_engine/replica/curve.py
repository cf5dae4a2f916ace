"""Key pairs of CurveZMQ, and the files they live in: the secret one for its owner alone, the public one to be
given away."""

import os
import re
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils import z85

from infer_engine.model.file_lock import file_lock
from infer_engine.secret_file import SecretFileError, check_writers, read_secret_file, write_secret_file

_KEY = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
MAX_KEY_FILE_BYTES = 4096
#: How long another process may take to make the same file.
LOCK_S = 10.0


class KeyFileError(Exception):
    """``str()`` is one line for the operator: which file, what is wrong with it."""


class KeyPair(NamedTuple):
    """32 bytes each."""

    public: bytes
    secret: bytes


def new_pair() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(z85.decode(public), z85.decode(secret))


def key_of(text: str) -> bytes:
    """ValueError unless it is a key as files have it: 64 hexadecimal digits."""
    if _KEY.fullmatch(text) is None:
        raise ValueError("a key is 64 hexadecimal digits")
    return bytes.fromhex(text)


def public_file(secret_file: Path) -> Path:
    return secret_file.with_name(f"{secret_file.name}.pub")


def kept_pair(path: Path) -> KeyPair:
    """The pair whose secret key is in ``path``, made there where it is missing; the public key stands beside
    it in ``path.pub``. KeyFileError when it cannot be read, trusted or written."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_lock(path.with_name(f"{path.name}.lock"), LOCK_S):
            if not path.exists() and not path.is_symlink():
                write_secret_file(path, f"{new_pair().secret.hex()}\n".encode())
            pair = _read_pair(path)
            shown = public_file(path)
            line = f"{pair.public.hex()}\n"
            if not shown.exists() or shown.read_text() != line:
                shown.write_text(line)
                shown.chmod(0o644)
    except SecretFileError as error:
        raise KeyFileError(str(error)) from None
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror or error}") from None
    return pair


def _read_pair(path: Path) -> KeyPair:
    text = read_secret_file(path, max_bytes=MAX_KEY_FILE_BYTES).decode(errors="replace").strip()
    try:
        secret = key_of(text)
    except ValueError as error:
        raise KeyFileError(f"{path}: {error}; this file has something else") from None
    return KeyPair(z85.decode(zmq.curve_public(z85.encode(secret))), secret)


def read_public_key(path: Path) -> bytes:
    """The key in a file that was given away, which everybody may read. KeyFileError where there is none, or
    where somebody else may write it: who does decides which server is trusted."""
    try:
        with path.open("rb") as file:
            check_writers(os.fstat(file.fileno()), path)
            text = file.read(MAX_KEY_FILE_BYTES).decode(errors="replace").strip()
        return key_of(text)
    except SecretFileError as error:
        raise KeyFileError(str(error)) from None
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise KeyFileError(f"{path}: {error}; this file has something else") from None
