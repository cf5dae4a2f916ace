"""What a fleet needs of a replica's process, whoever launches it and wherever it lives."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from infer_engine.replica.messages import ReplicaConfig


class ReplicaProcess(Protocol):
    """What a launcher hands out: something that lives, and can be ended."""

    @property
    def pid(self) -> int | None:
        """None while it has no process yet, where one has to be found a place first."""
        ...

    async def wait(self) -> int:
        """Its exit code (negative: the signal) once it has ended."""
        ...

    def hang_up(self) -> None:
        """Let it know that nobody needs it any more."""
        ...

    def kill(self) -> None: ...

    async def stop(self) -> int | None:
        """End it, kindly and then less so, within seconds; None if nothing helped."""
        ...

    def log_tail(self) -> str: ...

    def cpu_s(self) -> float | None:
        """Seconds of CPU it has used; None where that is not known."""
        ...

    def oom_killed(self) -> bool | None:
        """Of one that was killed: whether the kernel may have done it for want of memory; None where that is
        not known."""
        ...

    def cause(self) -> str | None:
        """Why it ended, where the launcher knows more than the exit code; None where that tells all."""
        ...


#: Starts a replica: its configuration, the file for its log, and how many threads it computes with.
Launch = Callable[[ReplicaConfig, Path, int], Awaitable[ReplicaProcess]]
