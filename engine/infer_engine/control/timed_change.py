"""Changes that go back by themselves after a while, as operations: one for each that is pending, also for
those that a server before this one left."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from infer_engine.control.operations import ENDED, Handle, OperationFailed, Operations
from infer_engine.durations import show_duration
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Refusal
from infer_engine.fleet.live_limits import Moves
from infer_engine.fleet.spec_file import PendingRevert
from infer_engine.fleet.tenant_limits import shown_limit
from infer_engine.protocol import Effect, TenantLimits

#: The operation's parameter that names what is pending.
KEY = "revert"
HEADROOM = "headroom-revert"
_MARKS = {"admit_limit": "admit limit", "batch_limit": "batch limit"}


@dataclass(frozen=True, slots=True)
class TimedChanges:
    """``wall`` gives Unix seconds."""

    fleet: Fleet
    operations: Operations
    wall: Callable[[], float]

    @contextmanager
    def announced(self, pending: PendingRevert | None) -> Generator[str | None]:
        """Around a timed change (None: another one): from before it takes effect it is written down as one
        that goes back, so that a server which ends before it answers leaves nothing that lasts. A change that
        fails is not moved back by itself."""
        if pending is None:
            yield None
            return
        key = self.fleet.reverts.add(pending)
        try:
            yield key
        except Exception:
            self.fleet.reverts.drop(key)
            raise

    def told(
        self, key: str | None, after_s: float | None, params: dict[str, Any], moves: Moves | None = None
    ) -> str:
        """The change took effect: begin the operation that will put it back when it is due, name it in
        ``params``, and return what to add to the change's message. The caller asked for room before.
        ``moves``: from what to what limits went, as replicas say."""
        if key is None or after_s is None:
            return ""
        pending = self.fleet.reverts.pending.get(key)
        if pending is None:
            return "; it was changed again meanwhile and does not go back"
        # Part of it may have been changed again, and stays.
        left = {
            replica: {name: (moves or {}).get(replica, {}).get(name, pair) for name, pair in move.items()}
            for replica, move in pending.limits.items()
        }
        pending = structs.replace(pending, due_at=self.due_at(after_s), limits=left)
        self.fleet.reverts.pending[key] = pending
        params["revert_operation"] = self._start(key, pending)
        return f"; back in {show_duration(after_s)}"

    def due_at(self, after_s: float) -> float:
        """Unix seconds; ``after_s`` is of the fleet's clock."""
        return self.wall() + after_s / self.fleet.pace

    def resume(self) -> None:
        """Once, when the server starts: what is due already goes back at once."""
        for key, pending in self.fleet.reverts.pending.items():
            self._start(key, pending)

    def limits_change(self, replicas: Iterable[str], names: Iterable[str], why: str) -> None:
        """Who changes a thing again does not want it moved back under them; what else goes back does."""
        for key in self.fleet.reverts.limits_changed(replicas, names):
            left = self.fleet.reverts.pending.get(key)
            if left is None:
                self._cancel(key, why)
            else:
                self._change(key, {"replicas": list(left.limits)})

    def tenant_changes(self, tenant: str) -> None:
        for key in self.fleet.reverts.tenant_changed(tenant):
            self._cancel(key, "it was changed again")

    # --- inside --------------------------------------------------------------------------------------------

    def _start(self, key: str, pending: PendingRevert) -> str:
        params: dict[str, Any] = {KEY: key}
        if pending.limits:
            params["replicas"] = list(pending.limits)
        return self.operations.start(
            pending.kind,
            pending.target,
            lambda handle: self._work(handle, key),
            actor=pending.actor,
            reason=pending.reason,
            deadline_at=pending.due_at,
            params=params,
            refusable=False,
        ).id

    async def _work(self, handle: Handle, key: str) -> None:
        """It stays pending where the server ends before it is due."""
        due_at = self.fleet.reverts.pending[key].due_at
        await asyncio.sleep(max(0.0, due_at - self.wall()))
        pending = self.fleet.reverts.pending[key]
        try:
            message = await self._put_back(pending)
        except Refusal as refusal:
            self.fleet.reverts.drop(key)
            raise OperationFailed(str(refusal)) from refusal
        self.fleet.reverts.drop(key)
        handle.update(message=message)

    async def _put_back(self, pending: PendingRevert) -> str:
        reverts = self.fleet.reverts
        if pending.tenant is not None:
            if not await reverts.put_back_tenant(pending):
                return "nothing to put back"
            return f"{tenant_text(pending.tenant_after)} → {tenant_text(pending.tenant_before)}"
        return moves_text(await reverts.put_back_limits(pending)) or "nothing to put back"

    def _operation(self, key: str) -> str | None:
        for each in self.operations.newest_first():
            if each.params.get(KEY) == key and each.phase not in ENDED:
                return each.id
        return None

    def _cancel(self, key: str, why: str) -> None:
        operation = self._operation(key)
        if operation is not None:
            self.operations.cancel(operation, why)

    def _change(self, key: str, params: dict[str, Any]) -> None:
        operation = self._operation(key)
        if operation is not None:
            now = self.operations.get(operation)
            self.operations.change(operation, {"params": {**now.params, **params}})


def with_revert(effect: Effect, after_s: float | None) -> Effect:
    """What is predicted of a change, and that it goes back, where it does."""
    if after_s is None:
        return effect
    return structs.replace(
        effect, summary=[*effect.summary, f"it goes back by itself after {show_duration(after_s)}"]
    )


def moves_text(moves: Moves) -> str:
    return ", ".join(
        _move_text(replica, name, old, new)
        for replica, move in moves.items()
        for name, (old, new) in move.items()
    )


def _move_text(replica: str, name: str, old: int, new: int) -> str:
    what, unit = _MARKS.get(name, name), " blocks" if name in _MARKS else ""
    return (
        f"{replica} {what} stays at {new:,}{unit}"
        if old == new
        else f"{replica} {what} {old:,} → {new:,}{unit}"
    )


def tenant_text(limits: TenantLimits | None) -> str:
    if limits is None:
        return "the default"
    given = {
        name: value for name in TenantLimits.__struct_fields__ if (value := getattr(limits, name)) is not None
    }
    return " ".join(f"{name}={shown_limit(name, value)}" for name, value in given.items()) or "no limits"
