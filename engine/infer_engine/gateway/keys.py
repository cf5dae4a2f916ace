"""API keys: who may send requests, as which tenant, in which tier, until when.

The file is TOML or JSON and holds no key, only what tells one when it is given::

    [[keys]]
    id = "chat-frontend"
    sha256 = "…"              # of the key, in hexadecimal
    tenant = "frontend"
    tier = "batch"            # a ceiling: only batch; left out, both tiers
    concurrency = 32          # most requests of this key at once; left out, no bound
    expires = 2027-01-01T00:00:00Z
"""

import hashlib
import hmac
import logging
import time
import tomllib
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from infer_engine.protocol import Tier
from infer_engine.secret_file import SecretFileError, read_secret_file

log = logging.getLogger(__name__)

#: How keys that are made here begin; those made elsewhere may look as they like.
PREFIX = "ick"
MOST_KEYS = 10_000
MAX_KEY_CHARS = 512

_Name = Annotated[str, Meta(pattern=r"\A[a-z0-9-]{1,64}\Z")]


class KeysError(Exception):
    """The key file cannot be used. ``str()`` is one line for the operator, without anything secret."""


class ApiKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``sha256`` of the key itself; ``tier`` is a ceiling: batch means nothing else."""

    id: _Name
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    tenant: _Name
    tier: Tier | None = None
    concurrency: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    #: With a time zone.
    expires: Annotated[datetime, Meta(tz=True)] | None = None

    def has_expired(self, now_s: float) -> bool:
        """``now_s`` in Unix seconds."""
        return self.expires is not None and now_s >= self.expires.timestamp()


class KeyFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keys: Annotated[list[ApiKey], Meta(max_length=MOST_KEYS)]


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def parse_keys(data: bytes, name: str) -> list[ApiKey]:
    """The keys of a file called ``name``; KeysError for what is none."""
    try:
        text = data.decode("utf-8-sig")
        document = msgspec.json.decode(text) if text.lstrip().startswith("{") else tomllib.loads(text)
        keys = msgspec.convert(document, KeyFile).keys
    except UnicodeDecodeError:
        raise KeysError(f"{name}: is not UTF-8 text") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise KeysError(f"{name}: {error}") from None
    except ValueError as error:  # of TOML, and of a number with thousands of digits
        # The message has the place, never the line.
        raise KeysError(f"{name}: not valid TOML: {error}") from None
    for what in ("id", "sha256"):
        given = [getattr(key, what) for key in keys]
        if len(set(given)) < len(given):
            twice = next(key.id for at, key in enumerate(keys) if given[at] in given[:at])
            raise KeysError(f"{name}: two keys have the same {what} (the second is of {twice})")
    return keys


class Keyring:
    """The keys of one file. ``clock`` gives Unix seconds."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """KeysError when the file cannot be used: a server must not start open because of a typing
        mistake."""
        self._path = path
        self._clock = clock
        self._keys = self._read()

    @property
    def keys(self) -> Sequence[ApiKey]:
        return self._keys

    def reload(self) -> bool:
        """Read the file again. What cannot be used leaves the keys as they were, and is logged; True when
        they are those of the file now."""
        try:
            self._keys = self._read()
        except KeysError as error:
            log.warning("the API keys stay as they were: %s", error)
            return False
        log.info("read %d API keys", len(self._keys))
        return True

    def find(self, key: str) -> ApiKey | None:
        """Whose key this is, expired ones too. Takes as long for a wrong key as for any right one."""
        if len(key) > MAX_KEY_CHARS:
            return None
        digest = digest_of(key)
        found: ApiKey | None = None
        for each in self._keys:
            if hmac.compare_digest(each.sha256, digest):
                found = each
        return found

    def has_expired(self, key: ApiKey) -> bool:
        return key.has_expired(self._clock())

    def _read(self) -> list[ApiKey]:
        try:
            data = read_secret_file(self._path)
        except SecretFileError as error:
            raise KeysError(str(error)) from None
        return parse_keys(data, str(self._path))
