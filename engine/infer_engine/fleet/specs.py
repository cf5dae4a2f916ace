"""What is wanted of the fleet, of each replica and of each tenant, whatever becomes of processes: the books.

What is wanted now stands where it acts: in the handles, at the tenants' desk, in ``Wanted``. Here it is
compared with what was last written down, so that no change, whoever made it, goes without its version and
without being written.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from infer_engine.fleet.beginning import Wanted
from infer_engine.fleet.generation import refuse
from infer_engine.fleet.spec_file import (
    FleetWritten,
    JoinedWritten,
    PendingRevert,
    ReplicaWritten,
    SpecDir,
    SpecFile,
    TenantWritten,
)
from infer_engine.fleet.tenants import TenantDesk
from infer_engine.protocol import EVERYONE, FleetSpec, ReplicaSpec, TenantLimits, Tenants
from infer_engine.replica.handle import ReplicaHandle

log = logging.getLogger(__name__)

FLEET = "fleet"

Spec = ReplicaSpec | FleetSpec | TenantLimits


def replica_spec(handle: ReplicaHandle) -> ReplicaSpec:
    limits = {name: value for name, value in handle.wanted_limits.items() if isinstance(value, int)}
    return ReplicaSpec(cordoned=handle.cordoned and not handle.reopens, fenced=handle.fenced, limits=limits)


@dataclass(slots=True)
class _Entry:
    spec: Spec
    generation: int = 0
    observed: int = 0
    #: Of a replica: when each of its limits was set.
    limits_at: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(slots=True)
class Specs:
    """``directory`` None: nothing outlives the server. Versions are asked for by target: ``fleet``,
    ``replica:ID``, ``tenant:NAME`` (``tenant:*`` for all without limits of their own)."""

    handles: Mapping[str, ReplicaHandle]
    desk: TenantDesk
    wanted: Wanted
    configured: int
    #: What goes back by itself, as it is now; written down with the specs.
    reverts: Callable[[], Mapping[str, PendingRevert]] = dict
    directory: SpecDir | None = None
    #: What was lost, or why nothing is kept, in words.
    trouble: str | None = None
    clock: Callable[[], float] = time.time
    #: When this run of the server began.
    _began_at: float = 0.0
    _book: str = field(default_factory=lambda: secrets.token_hex(4))
    _changes: int = 0
    _written: int = 0
    _reverts: Mapping[str, PendingRevert] = field(default_factory=dict[str, PendingRevert])
    _entries: dict[str, _Entry] = field(default_factory=dict[str, _Entry])
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def begin(self, known: SpecFile | None) -> None:
        """After ``restore``: everything is as it is known, or as the defaults, which are nobody's change."""
        self._began_at = self.clock()
        if known is not None:
            self._book, self._changes = known.book, known.changes
        entries = {target: _Entry(spec) for target, spec in self._now().items()}
        if known is not None:
            for name, written in (known.replicas | known.joined).items():
                _date(entries, f"replica:{name}", written.generation)
                if f"replica:{name}" in entries:
                    entries[f"replica:{name}"].limits_at = written.limits_at
            for name, written in known.tenants.items():
                _date(entries, f"tenant:{name}", written.generation)
            _date(entries, FLEET, known.fleet.generation)
        self._entries = entries
        self._written = self._changes
        self._reverts = dict(self.reverts())
        if known is not None and (known.configured != self.configured or self._file() != known):
            self._changes += 1  # another number of replicas than that of the last start is written down

    # --- what is wanted, and which version of it -----------------------------------------------------------

    def version(self, target: str) -> str:
        """Opaque, and another one after every change. KeyError for a replica that there is not; a tenant
        without limits of its own has the version of those that it goes by: the default's."""
        return f"{self._book}-{self.generation(target)}"

    def generation(self, target: str) -> int:
        return self._entry(target).generation

    def observed_generation(self, target: str) -> int:
        """The last change of it that is in force."""
        entry = self._entry(target)
        if entry.observed != entry.generation and self._in_force(target):
            entry.observed = entry.generation
        return entry.observed

    def spec(self, target: str) -> Spec:
        return self._entry(target).spec

    def kept_limits(self, replica: str) -> dict[str, float]:
        """Those that were set before this run of the server, with when: Unix seconds."""
        entry = self._entry(f"replica:{replica}")
        return {name: at for name, at in entry.limits_at.items() if at < self._began_at}

    def of_tenants(self, tenants: Tenants) -> Tenants:
        """With their versions."""
        shown = [
            structs.replace(each, resource_version=self.version(f"tenant:{each.name}"))
            for each in tenants.tenants
        ]
        return structs.replace(tenants, tenants=shown)

    def _entry(self, target: str) -> _Entry:
        """Of this one target, brought up to date."""
        kind, _, name = target.partition(":")
        if kind == "replica" and name:
            handle = self.handles[name]
            if handle.leaving:  # it is not in the books any more
                return self._entries.get(target) or _Entry(replica_spec(handle))
            return self._note(target, replica_spec(handle))
        if kind == "tenant" and name:
            own = self.desk.default if name == EVERYONE else self.desk.named.get(name)
            if own is None:
                if self._entries.pop(target, None) is not None:
                    self._changes += 1
                return self._note(f"tenant:{EVERYONE}", self.desk.default)
            return self._note(target, own)
        if target != FLEET:
            raise KeyError(target)
        return self._note(target, self._fleet_spec())

    def _fleet_spec(self) -> FleetSpec:
        return FleetSpec(replicas=self.wanted.replicas, shed=self.wanted.shed)

    def _note(self, target: str, spec: Spec) -> _Entry:
        entry = self._entries.get(target)
        if entry is None or entry.spec != spec:
            self._changes += 1
            entry = self._entries[target] = _Entry(
                spec,
                self._changes,
                entry.observed if entry is not None else 0,
                _dated(entry, spec, self.clock()),
            )
        return entry

    def _in_force(self, target: str) -> bool:
        kind, _, name = target.partition(":")
        if kind == "tenant":
            return True
        if target == FLEET:
            unfenced = [each for each in self.handles.values() if each.fenced is None]
            launched = sum(each.joined is None for each in unfenced)
            return launched == self.wanted.replicas and all(
                each.shed == self.wanted.shed for each in unfenced
            )
        handle = self.handles[name]
        if handle.fenced is not None:
            return handle.state == "fenced"
        closed = handle.state in ("draining", "drained")
        wanted = replica_spec(handle).limits.items()
        return closed == handle.cordoned and all(handle.limits.get(key) == value for key, value in wanted)

    def _now(self) -> dict[str, Spec]:
        now: dict[str, Spec] = {FLEET: self._fleet_spec(), f"tenant:{EVERYONE}": self.desk.default}
        now |= {
            f"replica:{each.id}": replica_spec(each) for each in self.handles.values() if not each.leaving
        }
        now |= {f"tenant:{name}": limits for name, limits in self.desk.named.items()}
        return now

    # --- writing it down -----------------------------------------------------------------------------------

    def note_all(self) -> bool:
        """Compare everything with the books; True when something is not on the disk yet."""
        now = self._now()
        for gone in self._entries.keys() - now.keys():
            del self._entries[gone]
            self._changes += 1
        for target, spec in now.items():
            self._note(target, spec)
        if self._reverts != self.reverts():
            self._reverts = dict(self.reverts())
            self._changes += 1
        return self.directory is not None and self._written != self._changes

    async def save(self) -> None:
        """Everything that was wanted when this was called is on the disk when it returns. OSError when it
        could not be written; it is tried again with the next."""
        if not self.note_all():
            return
        async with self._turn:
            directory = self.directory
            if directory is None or not self.note_all():
                return
            changes, file = self._changes, self._file()
            await asyncio.to_thread(directory.write, file)
            self._written = changes
            if self.trouble is not None and self.trouble.startswith(_UNWRITTEN):
                self.trouble = None

    async def saved(self) -> None:
        """``save`` for those who answer an operator. Refusal when what they did would not survive."""
        try:
            await self.save()
        except OSError as error:
            raise refuse(
                503,
                "specs_not_durable",
                "It is done, but would not survive the server.",
                f"the change is in force; it could not be written: {self.unwritten(error)}",
            ) from error

    def unwritten(self, error: OSError) -> str:
        """Say so wherever the fleet is shown; returns why."""
        directory = self.directory.path if self.directory is not None else "?"
        why = f"{directory}: {error.strerror or error}"
        if self.trouble is None:
            log.error("specs cannot be written: %s", why)
            self.trouble = f"{_UNWRITTEN}{why}"
        return why

    def _file(self) -> SpecFile:
        replicas: dict[str, ReplicaWritten] = {}
        joined: dict[str, JoinedWritten] = {}
        tenants: dict[str, TenantWritten] = {}
        fleet = FleetWritten(replicas=self.wanted.replicas)
        for target, entry in self._entries.items():
            kind, _, name = target.partition(":")
            match entry.spec:
                case ReplicaSpec() as spec:
                    handle = self.handles.get(name)
                    if handle is not None and handle.joined is not None:
                        joined[name] = JoinedWritten(
                            spec=spec,
                            generation=entry.generation,
                            limits_at=dict(entry.limits_at),
                            host=handle.joined.host,
                            public=handle.joined.public.hex(),
                        )
                        continue
                    replicas[name] = ReplicaWritten(
                        spec=spec, generation=entry.generation, limits_at=dict(entry.limits_at)
                    )
                case TenantLimits() as limits:
                    if kind == "tenant" and (limits != TenantLimits() or name != EVERYONE):
                        tenants[name] = TenantWritten(limits=limits, generation=entry.generation)
                case FleetSpec() as spec:
                    fleet = FleetWritten(replicas=spec.replicas, shed=spec.shed, generation=entry.generation)
        return SpecFile(
            book=self._book,
            changes=self._changes,
            configured=self.configured,
            next_number=self.wanted.next_number,
            fleet=fleet,
            replicas=replicas,
            joined=joined,
            tenants=tenants,
            reverts=dict(self._reverts),
        )


#: How the trouble begins that ends by itself.
_UNWRITTEN = "specs are not on the disk: "


def _dated(before: _Entry | None, spec: Spec, now: float) -> dict[str, float]:
    """When each limit of the spec was set, now for those that are other than they were."""
    if not isinstance(spec, ReplicaSpec):
        return {}
    known = before.limits_at if before is not None else {}
    old = before.spec.limits if before is not None and isinstance(before.spec, ReplicaSpec) else {}
    return {
        name: known.get(name, now) if old.get(name) == value else now for name, value in spec.limits.items()
    }


def _date(entries: dict[str, _Entry], target: str, generation: int) -> None:
    if target in entries:
        entries[target].generation = generation
