"""Which replicas may join: the public keys in a file of the operator's, one a line, read again when it
changes."""

import logging
import os
from pathlib import Path

from infer_engine.replica.curve import KeyFileError, key_of
from infer_engine.secret_file import SecretFileError, read_secret_file

log = logging.getLogger(__name__)

#: Most keys of a list.
MOST_KEYS = 10_000


class KeyList:
    """A line is a key, then words of the operator's on whose it is; ``#`` begins a comment. KeyFileError when
    it cannot be read, or others than its owner may write it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = self._stamp_now()
        self._keys = _read(path)

    def __contains__(self, key: bytes) -> bool:
        self._look_again()
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def _look_again(self) -> None:
        """A list that cannot be read any more changes nothing: those who were on it stay."""
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = _read(self.path)
        except KeyFileError as error:
            log.warning("the keys of those who may join stay as they were: %s", error)
        else:
            log.info("%s has the keys of %d who may join", self.path, len(self._keys))

    def _stamp_now(self) -> tuple[int, ...] | None:
        try:
            info = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return None
        return info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_mode


def _read(path: Path) -> frozenset[bytes]:
    try:
        text = read_secret_file(path).decode(errors="replace")
    except SecretFileError as error:
        raise KeyFileError(str(error)) from None
    keys: set[bytes] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split(None, 1)
        if not words:
            continue
        try:
            keys.add(key_of(words[0]))
        except ValueError as error:
            raise KeyFileError(f"{path}: line {number}: {error}") from None
        if len(keys) > MOST_KEYS:
            raise KeyFileError(f"{path}: more than {MOST_KEYS:,} keys")
    return frozenset(keys)
