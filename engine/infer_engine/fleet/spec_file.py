"""Where specs outlive the server: one JSON file in a private directory, replaced as a whole and on the disk
before anybody is told that it is."""

import fcntl
import logging
import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from infer_engine.protocol import ReplicaSpec, TenantLimits

log = logging.getLogger(__name__)

FILE_NAME = "specs.json"
FORMAT_VERSION = 1
#: A file larger than this is none of ours.
MAX_BYTES = 16 << 20


class SpecDirError(Exception):
    """The directory cannot be used; ``str()`` says which and why."""


class Written(Struct, frozen=True, kw_only=True):
    """One target's last change: which of all it was."""

    generation: int = 0


class ReplicaWritten(Written, frozen=True, kw_only=True):
    spec: ReplicaSpec = ReplicaSpec()
    #: When each of its limits was set: Unix seconds.
    limits_at: dict[str, float] = {}


class JoinedWritten(ReplicaWritten, frozen=True, kw_only=True):
    """Of one that joined by itself: its machine, and its public key in hexadecimal digits."""

    host: str
    public: str


class FleetWritten(Written, frozen=True, kw_only=True):
    replicas: int
    shed: bool = False


class TenantWritten(Written, frozen=True, kw_only=True):
    #: Of ``*``, all tenants without limits of their own.
    limits: TenantLimits


class PendingRevert(Struct, frozen=True, kw_only=True):
    """A change that goes back by itself: what it changed, from what to what, and when that is over."""

    #: Of the operation that puts it back, and what that is done to.
    kind: str
    target: str
    #: Unix seconds.
    due_at: float
    actor: str = ""
    reason: str = ""
    #: Limits by replica and name: before and after the change.
    limits: dict[str, dict[str, tuple[int, int]]] = {}
    #: Or the limits of a tenant; None where it went, or goes, by the default.
    tenant: str | None = None
    tenant_before: TenantLimits | None = None
    tenant_after: TenantLimits | None = None


class SpecFile(Struct, frozen=True, kw_only=True):
    version: int = FORMAT_VERSION
    #: Begins every resource version, so that none is taken for one of another file.
    book: str
    #: Changes so far.
    changes: int
    #: The number of replicas that the server was started with: another one is a new wish.
    configured: int
    #: No replica is called as one before it.
    next_number: int
    fleet: FleetWritten
    replicas: dict[str, ReplicaWritten]
    tenants: dict[str, TenantWritten] = {}
    joined: dict[str, JoinedWritten] = {}
    #: By a number that nothing else here has.
    reverts: dict[str, PendingRevert] = {}


class SpecDir:
    """One server's own; held from ``open`` to ``close``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def open(self) -> None:
        """Make it where it is missing. SpecDirError when that, or having it alone, is not possible."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise SpecDirError(f"state directory {self.path}: another server uses it") from None
        except OSError as error:
            self.close()
            raise SpecDirError(f"state directory {self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self) -> tuple[SpecFile | None, str | None]:
        """What was written last, None where nothing was; and what is wrong with it, in words: then it was set
        aside. SpecDirError when the file cannot be read at all."""
        file = self.path / FILE_NAME
        try:
            with file.open("rb") as stream:
                content = stream.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None, None
        except OSError as error:
            raise SpecDirError(f"state file {file}: {error.strerror or error}") from error
        try:
            if len(content) > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES} bytes")
            known = msgspec.json.decode(content, type=SpecFile)
            if known.version != FORMAT_VERSION:
                raise ValueError(f"format version {known.version}, this server knows {FORMAT_VERSION}")
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            return None, self._set_aside(file, str(error))
        return known, None

    def _set_aside(self, file: Path, why: str) -> str:
        aside = file.with_name(f"{FILE_NAME}.unreadable-{time.time_ns()}")
        try:
            file.rename(aside)
        except OSError as error:
            raise SpecDirError(f"state file {file}: unreadable ({why}), {error.strerror or error}") from error
        trouble = f"{file} cannot be read ({why}) and was kept as {aside.name}: all specs are the defaults"
        log.error("%s", trouble)
        return trouble

    def write(self, known: SpecFile) -> None:
        """Durable when this returns. OSError, and what was there before still is, otherwise."""
        fresh = self.path / f"{FILE_NAME}.new"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            content = memoryview(msgspec.json.format(msgspec.json.encode(known)) + b"\n")
            while content:
                content = content[os.write(descriptor, content) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        fresh.replace(self.path / FILE_NAME)
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
