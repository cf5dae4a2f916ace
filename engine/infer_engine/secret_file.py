"""Files that hold secrets: read only when nobody but their owner can, written so that nobody else ever could.

A file that cannot be read as it should is an error, never "no secrets": a server must not start open because
of a typing mistake.
"""

import os
import stat
from pathlib import Path

#: Room for thousands of keys; more is no such file.
MAX_BYTES = 1024 * 1024


class SecretFileError(Exception):
    """``str()`` is one line for the operator: which file, what is wrong, what to do. Nothing of the file's
    content is in it."""


def read_secret_file(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The whole file. SecretFileError unless it is a regular file (not a link to one) of this user or root,
    that nobody else may read or write. What was checked is what is read: the checks are of the open file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SecretFileError(f"{path}: {_why(error, path)}") from None
    try:
        _check(os.fstat(handle), path)
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise SecretFileError(f"{path}: {error.strerror or error}") from None
    finally:
        os.close(handle)
    if len(data) > max_bytes:
        raise SecretFileError(f"{path}: is larger than {max_bytes:,} bytes")
    return data


def write_secret_file(path: Path, data: bytes) -> None:
    """Whole or not at all, readable by its owner alone from the first moment. SecretFileError where it cannot
    be written, or where a link is there now."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        if path.is_symlink():
            raise SecretFileError(f"{path}: is a link; name the file itself")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SecretFileError(f"{path}: {error.strerror or error}") from None


def _why(error: OSError, path: Path) -> str:
    return "is a link; name the file itself" if path.is_symlink() else error.strerror or str(error)


def _check(info: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise SecretFileError(f"{path}: is not a regular file")
    _check_owner(info, path)
    if info.st_mode & 0o077:
        raise SecretFileError(
            f"{path}: others may read or write it (mode {stat.S_IMODE(info.st_mode):04o}); chmod 600 it"
        )


def check_writers(info: os.stat_result, path: Path) -> None:
    """SecretFileError where somebody else may write a file that everybody may read."""
    _check_owner(info, path)
    if info.st_mode & 0o022:
        mode = stat.S_IMODE(info.st_mode)
        raise SecretFileError(f"{path}: others may write it (mode {mode:04o}); chmod go-w it")


def _check_owner(info: os.stat_result, path: Path) -> None:
    if info.st_uid not in (0, os.geteuid()):
        raise SecretFileError(f"{path}: belongs to another user (uid {info.st_uid})")
