"""The audit: who did or tried what, on the disk before they are answered.

Records are written by one thread, in the order in which they were handed in; those that come while it writes
go together with the next flush, so that a slow disk is waited for once and not once for each.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from infer_engine.audit_chain import Record
from infer_engine.control.audit_files import AuditFiles

log = logging.getLogger(__name__)

#: How long a record may take to reach the disk before its caller is told that it did not.
WRITE_TIMEOUT_S = 5.0
#: Records on their way to the disk.
MAX_PENDING = 1_000
#: Attempts that changed nothing and are written down one by one within a minute; of more only the number is
#: told, with the next that is.
MAX_NOTED_PER_MIN = 600


class AuditUnavailableError(Exception):
    """The record is not on the disk; ``str()`` says why."""


@dataclass(slots=True)
class Audit:
    """``wall`` gives Unix seconds, ``clock`` monotonic ones."""

    files: AuditFiles
    wall: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    #: Why the last record did not reach the disk; None when it did.
    trouble: str | None = None
    _pending: list[tuple[Record, "asyncio.Future[None]"]] = field(
        default_factory=list[tuple[Record, "asyncio.Future[None]"]]
    )
    _flusher: "asyncio.Task[None] | None" = None
    _minute: int = -1
    _noted: int = 0
    _untold: int = 0

    async def open(self) -> None:
        """AuditDirError when another server writes there; whatever else is wrong with the directory is told
        in the log and by every command that is refused for it."""
        try:
            await asyncio.to_thread(self.files.open)
        except OSError as error:
            self._failed(error)

    async def close(self) -> None:
        """What was handed in is written first, if the disk takes it."""
        if self._flusher is not None:
            await asyncio.wait({self._flusher}, timeout=WRITE_TIMEOUT_S)
        await asyncio.to_thread(self.files.close)

    async def record(self, record: Record) -> None:
        """It is on the disk when this returns. AuditUnavailableError when it is not."""
        if len(self._pending) >= MAX_PENDING:
            raise AuditUnavailableError("too many records wait for the disk")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append(({**record, "ts": self.wall()}, done))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush(), name="audit")
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await done
        except TimeoutError as error:
            why = f"{self.files.path}: not written within {WRITE_TIMEOUT_S:g} s"
            self._tell(why)
            raise AuditUnavailableError(why) from error
        except OSError as error:
            raise AuditUnavailableError(self.trouble or str(error)) from error

    async def note(self, record: Record) -> None:
        """Write down what changes nothing (a refused attempt, an answer given again, a reading of content):
        it goes on as it does whether or not that is possible."""
        minute = int(self.clock() // 60)
        if minute != self._minute:
            self._minute, self._noted = minute, 0
        self._noted += 1
        if self._noted > MAX_NOTED_PER_MIN:
            self._untold += 1
            return
        if self._untold:
            record, self._untold = {**record, "untold_before": self._untold}, 0
        try:
            await self.record(record)
        except AuditUnavailableError as error:
            log.warning("an attempt is not in the audit: %s", error)

    async def _flush(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            try:
                await asyncio.to_thread(self.files.append, [record for record, _ in batch])
            except Exception as error:  # noqa: BLE001 - whoever waits is told, whatever it was
                failure = error if isinstance(error, OSError) else OSError(str(error) or repr(error))
                self._failed(failure)
                for _, done in batch:
                    if not done.done():
                        done.set_exception(failure)
                        done.exception()  # its caller may have given up
                continue
            if self.trouble is not None:
                log.warning("the audit is written again")
                self.trouble = None
            for _, done in batch:
                if not done.done():
                    done.set_result(None)

    def _failed(self, error: OSError) -> None:
        self._tell(f"{self.files.path}: {error.strerror or error}")

    def _tell(self, why: str) -> None:
        if self.trouble != why:
            log.error("the audit cannot be written, commands other than those that reduce risk wait: %s", why)
        self.trouble = why
